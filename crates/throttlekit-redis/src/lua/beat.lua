-- Lets leases live as long again.
-- KEYS: one per lease. ARGV: now or '', grace in ms, how long they live in µs; then per lease its name and its owner's.
-- Answer: now, then per lease { instant, end or 0 where it is lost }, or { -1, key } where a key holds something foreign.
-- Mirrors SlotTable::heartbeat.
local rules = {}

local function beat(key, member)
  local instant, over, held = look(key)
  local own = own_end(key, member, instant)
  purge(key, instant, over)
  if own then
    own = max(own, instant + ARGV[3])
    enter(key, member, own)
  end
  if own or over > 0 then
    changed(key, instant, held)
  end
  return { instant, own or 0 }
end
