-- The next commonest by itself: one ask, a charge of GCRA in whole microseconds and one of a window on an even grid, or of
-- a budget. The same arguments and answer as below, without building what other rules need. Whatever is out of the
-- ordinary is left to that: nothing has been written by then.
-- Mirrors rules.g and rules.w.
local function two()
  local time, cost = tonumber(ARGV[5]), tonumber(ARGV[12])
  if time <= 0 or cost <= 0 then
    return nil
  end
  local full, since, finish, used = now, now, 0, 0
  local bucket, window = {}, {}
  local stored = try('GET', KEYS[1])
  absent = not stored
  if stored then
    local instant, back, unit
    if type(stored) == 'string' then
      instant, back, unit = string.match(stored, '^(%d+) (%d+) (%d+)$')
      instant = tonumber(instant)
    end
    if not (instant and unit == ARGV[10] and instant < 9007199254740992 and instant - back >= 0) then
      return nil
    end
    bucket = { instant, 0 }
    full = instant > now and instant or now
    since = instant - back > now and instant - back or now
  end
  stored = try('GET', KEYS[2])
  absent = absent or not stored
  if stored then
    local ends, units
    if type(stored) == 'string' then
      ends, units = string.match(stored, '^(%d+) (%d+)$')
      ends, units = tonumber(ends), tonumber(units)
    end
    if not (ends and ends < 9007199254740992 and units < 9007199254740992) then
      return nil
    end
    if now < ends then
      finish, used, window = ends, units, { ends, units }
    end
  end
  full = full + time
  local limit = tonumber(ARGV[13])
  local left = used < limit and limit - used or 0
  if full > now + ARGV[7] or (ARGV[11] == 'b' and 1 or cost) > left then
    return { now, { 0, bucket, window } }
  end
  if finish == 0 then
    local length = tonumber(ARGV[14])
    finish = now + length - math.fmod(now + ARGV[15], length)
  end
  local bucket_life, window_life = full + 1 - now, finish - now
  call('SET', KEYS[1], string.format('%.0f %.0f %s', full, full - since, ARGV[10]), 'PX',
    string.format('%.0f', math.ceil(bucket_life / 1000) + 1 + ARGV[2]))
  call('SET', KEYS[2], string.format('%.0f %.0f', finish, used + cost), 'PX',
    string.format('%.0f', math.ceil(window_life / 1000) + 1 + ARGV[2]))
  return { now, { 1, bucket, window } }
end

if #ARGV == 15 and ARGV[3] == '2' and ARGV[4] == 'g' and ARGV[9] == '1' and (ARGV[11] == 'w' or ARGV[11] == 'b') then
  local answer = two()
  if answer then
    return answer
  end
end
