-- How many slots of each key are held.
-- KEYS: the keys. ARGV: now or '', grace in ms. Answer: now, then per key { instant, held }, or { -1, key } where a key
--   holds something foreign. Mirrors SlotTable::occupancy.
local answer = { now }
for i, key in ipairs(KEYS) do
  local fine, over, held = pcall(look, key)
  answer[i + 1] = fine and { now, held } or foreign(over)
end
return answer
