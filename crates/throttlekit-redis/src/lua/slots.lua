-- How the slots of a key are kept: a sorted set of leases by when they are over, in µs. A member is a lease's name and its
-- owner's, so that only the pair finds it. One member more, 't', has the longest life in µs that a lease was given since
-- none was held, as a negative score: it stands before all leases and no purge meets it. Where nothing is held, nothing is
-- kept. Mirrors SlotTable. Before, an instant stood in the place of that life: it is so long that it cuts no lease short.

-- How many leases of the key are over, how many are held, the longest life, and how many end later than any may, since the
-- clock has stepped back; nothing changes.
local function look(key)
  local stored = ours(try('ZSCORE', key, 't'), key)
  if not stored then
    if call('EXISTS', key) == 1 then
      bad(key)
    end
    return 0, 0, 0, 0
  end
  local longest = whole(-tonumber(stored), key)
  local over = call('ZCOUNT', key, '-0.5', string.format('%.0f', now))
  local late = call('ZCOUNT', key, string.format('(%.0f', now + longest), '+inf')
  return over, call('ZCARD', key) - 1 - over, longest, late
end

-- Until when a lease is held, if it is.
local function own_end(key, member, longest)
  local score = call('ZSCORE', key, member)
  local ends = score and whole(score, key)
  return ends and ends > now and min(ends, now + longest) or nil
end

local function enter(key, member, ends)
  call('ZADD', key, string.format('%.0f', ends), member)
end

-- Brings the leases of a key to the present instant. Mirrors SlotTable::advance.
local function advance(key, over, longest, late)
  if over > 0 then
    call('ZREMRANGEBYSCORE', key, '-0.5', string.format('%.0f', now))
  end
  if late > 0 then
    for _, member in ipairs(call('ZRANGEBYSCORE', key, string.format('(%.0f', now + longest), '+inf')) do
      enter(key, member, now + longest)
    end
  end
end

-- Something was changed: so many are held now, and this is the longest life. The key goes some time after its last lease
-- is over.
local function changed(key, held, longest)
  if held == 0 then
    call('DEL', key)
    return
  end
  call('ZADD', key, string.format('%.0f', -longest), 't')
  local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
  call('PEXPIRE', key, ttl(tonumber(last[2])))
end
