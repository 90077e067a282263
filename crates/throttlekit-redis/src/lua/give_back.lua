-- Takes lent units back into the windows they came from, while those last. Each return counts once.
-- KEYS: per return its key, and a name of its own that is remembered as long as the window. ARGV: now or '', grace in
--   ms; then per return the end of its window and its units.
-- Mirrors Account::take_back.
local function take_back(key, name, finish, units)
  local stored = read_window(key)
  -- A name counts as seen also where there is nothing to take back from, as a copy of it may come later.
  if call('SET', name, '1', 'NX', 'PX', ttl(finish)) and stored[1] == finish then
    write_window(key, finish, max(stored[2] - units, 0))
  end
end

local p, bad_key = 3, nil
for i = 1, #KEYS, 2 do
  local fine, why = pcall(take_back, KEYS[i], KEYS[i + 1], tonumber(ARGV[p]), ARGV[p + 1])
  if not fine then
    -- A foreign value is that return's affair alone.
    bad_key = type(why) == 'string' and string.match(why, '^TKBAD ') and why
    if not bad_key then
      error(why, 0)
    end
  end
  p = p + 2
end
if bad_key then
  error(bad_key, 0)
end
return now
