-- Takes lent units back into the windows they came from, while those last. Each return counts once.
-- KEYS: per return its key, and a name of its own that is remembered as long as the window. ARGV: now or '', grace in
--   ms; then per return the end of its window and its units.
-- Mirrors Account::take_back.
local p = 3
for i = 1, #KEYS, 2 do
  local stored = read_window(KEYS[i])
  local finish = tonumber(ARGV[p])
  -- A name counts as seen also where there is nothing to take back from, as a copy of it may come later.
  if call('SET', KEYS[i + 1], '1', 'NX', 'PX', ttl(finish)) and stored[1] == finish then
    write_window(KEYS[i], finish, max(stored[2] - ARGV[p + 1], 0))
  end
  p = p + 2
end
return now
