-- How the slots of a key are kept: a sorted set of leases by when they are over, in µs. A member is a lease's name and its
-- owner's, so that only the pair finds it. One member more, 't', has the last instant at which anything was changed, as
-- a negative score: it stands before all leases and no purge meets it. Where nothing is held, nothing is kept.
-- Mirrors SlotTable.

-- The instant that holds for the key, how many leases are over, and how many are held; nothing changes.
local function look(key)
  local last = ours(try('ZSCORE', key, 't'), key)
  if not last then
    if call('EXISTS', key) == 1 then
      bad(key)
    end
    return now, 0, 0
  end
  local instant = max(now, whole(-tonumber(last), key))
  local over = call('ZCOUNT', key, '-0.5', string.format('%.0f', instant))
  return instant, over, call('ZCARD', key) - 1 - over
end

-- Until when a lease is held, if it is.
local function own_end(key, member, instant)
  local score = call('ZSCORE', key, member)
  local ends = score and whole(score, key)
  return ends and ends > instant and ends or nil
end

local function purge(key, instant, over)
  if over > 0 then
    call('ZREMRANGEBYSCORE', key, '-0.5', string.format('%.0f', instant))
  end
end

local function enter(key, member, ends)
  call('ZADD', key, string.format('%.0f', ends), member)
end

-- Something was changed: so many are held now. The key goes some time after its last lease is over.
local function changed(key, instant, held)
  if held == 0 then
    call('DEL', key)
    return
  end
  call('ZADD', key, string.format('%.0f', -instant), 't')
  local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
  call('PEXPIRE', key, ttl(tonumber(last[2])))
end
