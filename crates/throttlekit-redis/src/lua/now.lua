local call = redis.call
-- The instant: the server's, in microseconds, unless a test says otherwise.
local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end

-- Whether any key that was read held nothing: either there was nothing to keep, or it was lost.
local absent = false

-- What was read under a key. A key of another type is not ours: the script ends before it writes, and names it.
local try = redis.pcall
local function ours(found, key)
  if not found then
    absent = true
  elseif type(found) == 'table' then
    if found.err then
      error(string.find(found.err, '^WRONGTYPE') and 'TKBAD ' .. key or found, 0)
    end
    absent = absent or #found == 0
  end
  return found
end
