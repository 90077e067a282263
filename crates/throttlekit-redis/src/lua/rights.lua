#!lua
-- Which of the commands that our scripts use this user may not run.
-- KEYS: where a string may be written, and a list and a sorted set one after the other; ours and gone within a second. ARGV: 'fence' or ''.
-- Answer: names of commands.
local refused = {}

local function try(command, ...)
  local answer = redis.pcall(command, ...)
  local err = type(answer) == 'table' and answer.err
  -- Redis 7.0 words it one way, later ones and Valkey another.
  if err and (string.find(err, 'user executing the script') or string.find(err, 'ACL failure') or string.find(err, 'NOPERM')) then
    refused[#refused + 1] = command
  end
end

try('TIME')
try('SET', KEYS[1], '1', 'PX', 1000)
try('GET', KEYS[1])
try('RPUSH', KEYS[2], '1', '1')
try('PEXPIRE', KEYS[2], 1000)
try('LSET', KEYS[2], 0, '1')
try('LRANGE', KEYS[2], 0, -1)
try('LLEN', KEYS[2])
try('LINDEX', KEYS[2], 0)
try('LREM', KEYS[2], 1, 'none')
try('LTRIM', KEYS[2], 0, 0)
try('RPOP', KEYS[2])
try('EXISTS', KEYS[2])
try('ZADD', KEYS[2], 1, 'a')
try('PEXPIRE', KEYS[2], 1000)
try('ZSCORE', KEYS[2], 'a')
try('ZCARD', KEYS[2])
try('ZCOUNT', KEYS[2], 0, 1)
try('ZRANGE', KEYS[2], 0, 0)
try('ZREM', KEYS[2], 'none')
try('ZREMRANGEBYSCORE', KEYS[2], 0, 1)
try('DEL', KEYS[1])
if ARGV[1] == 'fence' then
  try('INFO', 'replication')
  try('PTTL', KEYS[1])
end
return refused
