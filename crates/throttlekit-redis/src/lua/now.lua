local call = redis.call
-- The instant: the server's, in microseconds, unless a test says otherwise.
local now = ARGV[1]
if now == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end
