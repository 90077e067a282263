-- Gives slots back.
-- KEYS: one per lease. ARGV: now or '', grace in ms; then per lease its name and its owner's.
-- Answer: now, then per lease { 1 or 0 where it was not held }, or { -1, key } where a key holds something foreign.
-- Mirrors SlotTable::release.
local function release(key, member)
  local over, held, longest, late = look(key)
  local own = own_end(key, member, longest)
  advance(key, over, longest, late)
  if own then
    call('ZREM', key, member)
    held = held - 1
  end
  if own or over > 0 or late > 0 then
    changed(key, held, longest)
  end
  return { own and 1 or 0 }
end

local answer = { now }
for i, key in ipairs(KEYS) do
  local fine, reply = pcall(release, key, ARGV[2 + i])
  answer[i + 1] = fine and reply or foreign(reply)
end
return answer
