-- Lets leases live as long again.
-- KEYS: one per lease. ARGV: now or '', grace in ms, how long they live in µs; then per lease its name and its owner's.
-- Answer: now, then per lease { instant, end or 0 where it is lost }, or { -1, key } where a key holds something foreign.
-- Mirrors SlotTable::heartbeat.
local rules = {}

local function heartbeat(key, member)
  local over, held, longest, late = look(key)
  local own = own_end(key, member, longest)
  advance(key, over, longest, late)
  if own then
    own = max(own, now + ARGV[3])
    longest = max(longest, tonumber(ARGV[3]))
    enter(key, member, own)
  end
  if own or over > 0 or late > 0 then
    changed(key, held, longest)
  end
  return { now, own or 0 }
end
