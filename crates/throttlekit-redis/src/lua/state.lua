-- How each rule's state is kept, by kind:
--   g  string "instant:rest back unit:base"         Gcra: when the bucket is full again, how long before that it was
--                                                  written, and at which pace; without rest and base where they are 0 and 1.
--                                                  Once without a pace, which is then that of whoever asks
--   w  string "end used"                            Window, on even grids (w), by months (m) and by the calendar
--                                                  of a time zone (c), and budgets on these (b, n and d)
--   s  string, packed array: tick, counts           SlidingWindow
--   l  list of "instant:units", then their sum      SlidingLog
--   p  string "end name weight granted name …"      Pool, of each region that has asked in the window
-- All times are whole microseconds, all numbers whole and below 2^53, so doubles are exact. Numbers are written by
-- '%.0f', never by tostring, which loses digits from 1e14 on, nor by the server, which in some versions writes 1e+15.
-- What is not a state ends the script before it writes.
local EXACT = 9007199254740992
-- Sums of two such numbers are exact.
local PACE_MAX = 4503599627370496
-- The longest anyone can be in debt, in µs.
local DEBT_MAX = 100 * 366 * 86400 * 1000000
local floor, ceil, fmod, max, min = math.floor, math.ceil, math.fmod, math.max, math.min

-- How many numbers a charge of each kind has.
local numbers_of = { g = 6, w = 4, m = 3, b = 4, n = 3, c = 5, d = 5, s = 4, l = 3 }
local is_month = { m = true, n = true }
local is_local = { c = true, d = true }
-- Budgets, which an ask may cross while any unit is left.
local crosses = { b = true, n = true, d = true }

local function bad(key)
  error('TKBAD ' .. key, 0)
end

-- The reply where a call ended with this: a foreign value is the affair of whoever asked for it alone, as rules look
-- before they write. Anything else ends the script.
local function foreign(why)
  local bad_key = type(why) == 'string' and string.match(why, '^TKBAD (.*)$')
  if not bad_key then
    error(why, 0)
  end
  return { -1, bad_key }
end

local function whole(value, key)
  local number = tonumber(value)
  if not (number and number >= 0 and number < EXACT and number % 1 == 0) then
    bad(key)
  end
  return number
end

-- Milliseconds until `idle`, and the grace in which a clock may step back.
local function ttl(idle)
  return string.format('%.0f', ceil(max(idle - now, 0) / 1000) + 1 + ARGV[2])
end

-- { instant, rest, since, unit, base }, without the last three where no pace was kept, or nothing. See Bucket.
local function read_gcra(key)
  local stored = ours(try('GET', key), key)
  if not stored then
    return {}
  end
  local instant, rest, back, unit, base = string.match(stored, '^(%d+):?(%d*) (%d+) (%d+):?(%d*)$')
  if not instant then
    instant, rest = string.match(stored, '^(%d+):?(%d*)$')
    if not instant then
      bad(key)
    end
    return { whole(instant, key) + (rest == '' and 0 or min(whole(rest, key), 1)), 0 }
  end
  instant, back, unit = whole(instant, key), whole(back, key), whole(unit, key)
  rest, base = rest == '' and 0 or whole(rest, key), base == '' and 1 or whole(base, key)
  if back > instant or rest >= base or unit == 0 or unit > PACE_MAX or base > PACE_MAX then
    bad(key)
  end
  return { instant, rest, instant - back, unit, base }
end

-- Time does not move back for a bucket: it is not written before it was.
local function write_gcra(key, stored, instant, rest, unit, base)
  local since = min(max(now, stored[3] or 0), instant)
  local value = base == 1 and string.format('%.0f %.0f %.0f', instant, instant - since, unit)
    or string.format('%.0f:%.0f %.0f %.0f:%.0f', instant, rest, instant - since, unit, base)
  call('SET', key, value, 'PX', ttl(instant + 1))
end

-- floor(a·b / c) and what is left over. The product may have more bits than a double: then bit by bit.
local function divided(a, b, c)
  if a * b < EXACT then
    local rest = fmod(a * b, c)
    return (a * b - rest) / c, rest
  end
  local part = fmod(a, c)
  local each, quotient, rest, bit = (a - part) / c, 0, 0, 4503599627370496
  while bit >= 1 do
    quotient = quotient + quotient
    if rest >= c - rest then
      quotient, rest = quotient + 1, rest - (c - rest)
    else
      rest = rest + rest
    end
    if b >= bit then
      b, quotient = b - bit, quotient + each
      if rest >= c - part then
        quotient, rest = quotient + 1, rest - (c - part)
      else
        rest = rest + part
      end
    end
    bit = bit / 2
  end
  return quotient, rest
end

-- How long the units that take this time to come back at the pace of `stored` take at another: whole microseconds,
-- rounded up. SharedPace::time_at.
local function time_at(stored, time, ticks, unit, base)
  local own_unit, own_base = stored[4], stored[5]
  local units, part = EXACT - 1, 0
  if time * own_base / own_unit < EXACT then
    units, part = divided(time, own_base, own_unit)
    local beyond = part + ticks
    part = fmod(beyond, own_unit)
    units = units + (beyond - part) / own_unit
    if units >= EXACT then
      units, part = EXACT - 1, 0
    end
  end
  if units * unit / base > 2 * DEBT_MAX then
    return DEBT_MAX
  end
  local time_of, over = divided(units, unit, base)
  local more, left = divided(part, unit, own_unit)
  return min(time_of + ceil((over + more + (left > 0 and 1 or 0)) / base), DEBT_MAX)
end

-- Whether a bucket was last written at this pace.
local function is_own(stored, unit, base)
  return not stored[4] or (stored[4] == unit and stored[5] == base)
end

-- When a bucket is full again at this pace, as it stands now, and the ticks beyond. Bucket::full_at.
local function carried_gcra(stored, unit, base)
  if is_own(stored, unit, base) then
    return stored[1], stored[2]
  end
  local since = stored[3]
  local at = max(now, since)
  local by_old = at + (at > stored[1] and 0 or time_at(stored, stored[1] - at, stored[2], unit, base))
  local by_new = since + time_at(stored, stored[1] - since, stored[2], unit, base)
  return min(by_old, max(by_new, at)), 0
end

-- What is told of a bucket: whoever asks knows the pace if it is theirs.
local function told_gcra(stored, unit, base)
  if #stored > 0 and is_own(stored, unit, base) then
    return { stored[1], stored[2] }
  end
  return stored
end

-- The bucket of a key as it stands now, and after a charge: instants and rests in ticks, `base` of them a microsecond.
local function charged_gcra(stored, time, rest, unit, base)
  local instant, ticks = now, 0
  if #stored > 0 and stored[1] >= now then
    instant, ticks = carried_gcra(stored, unit, base)
    if instant < now then
      instant, ticks = now, 0
    end
  end
  local after, after_ticks = instant + time, ticks + rest
  if after_ticks >= base then
    after, after_ticks = after + 1, after_ticks - base
  end
  return instant, ticks, after, after_ticks
end

local function read_window(key)
  local stored = ours(try('GET', key), key)
  if not stored then
    return {}
  end
  local finish, used = string.match(stored, '^(%d+) (%d+)$')
  if not finish then
    bad(key)
  end
  return { whole(finish, key), whole(used, key) }
end

local function write_window(key, finish, used)
  call('SET', key, string.format('%.0f %.0f', finish, used), 'PX', ttl(finish))
end

-- { end, regions = { { name, weight, granted }… } } or nothing.
local function read_pool(key)
  local stored = ours(try('GET', key), key)
  if not stored then
    return {}
  end
  local finish, at = string.match(stored, '^(%d+)()')
  local pool, regions = { finish and whole(finish, key) }, {}
  while finish and at <= #stored do
    local name, weight, granted, after = string.match(stored, '^ (%S+) ([1-9]%d*) (%d+)()', at)
    regions[#regions + 1] = { name = name, weight = whole(weight, key), granted = whole(granted, key) }
    finish, at = after and finish, after
  end
  if not finish then
    bad(key)
  end
  pool.regions = regions
  return pool
end

local function write_pool(key, finish, regions)
  local parts = { string.format('%.0f', finish) }
  for i, region in ipairs(regions) do
    parts[i + 1] = string.format('%s %.0f %.0f', region.name, region.weight, region.granted)
  end
  call('SET', key, table.concat(parts, ' '), 'PX', ttl(finish))
end

-- { tick, counts… } or nothing.
local function read_ring(key, buckets)
  local stored = ours(try('GET', key), key)
  if not stored then
    return {}
  end
  local fine, ring = pcall(cmsgpack.unpack, stored)
  if not fine or type(ring) ~= 'table' or #ring ~= buckets + 2 then
    bad(key)
  end
  for i = 1, #ring do
    ring[i] = whole(ring[i], key)
  end
  return ring
end

local function write_ring(key, ring, length, buckets)
  call('SET', key, cmsgpack.pack(ring), 'PX', ttl((ring[1] + 1 + buckets) / buckets * length + 1000))
end

-- Where in a ring bucket `tick` is.
local function place(tick, buckets)
  return 2 + fmod(tick, buckets + 1)
end

-- Makes `tick` the newest bucket and adds to it. Ring::roll_to.
local function add_to_ring(ring, tick, units, buckets)
  if #ring == 0 then
    ring[1] = tick
    for i = 2, buckets + 2 do
      ring[i] = 0
    end
  end
  for step = 0, min(tick - ring[1], buckets + 1) - 1 do
    ring[place(tick - step, buckets)] = 0
  end
  ring[1] = tick
  local at = place(tick, buckets)
  ring[at] = min(ring[at] + units, EXACT - 1)
end

-- The bucket that holds now, and how far it has run in 1/buckets µs. A ring's time never moves back.
local function bucket_of(ring, length, buckets)
  local into = fmod(now, length)
  local scaled = into * buckets
  local elapsed = fmod(scaled, length)
  local tick = (now - into) / length * buckets + (scaled - elapsed) / length
  if #ring > 0 and ring[1] > tick then
    return ring[1], 0
  end
  return tick, elapsed
end

-- The end of the window that holds now, on an even grid. Grid::end of Grid::index.
local function even_end(length, lead)
  return now - fmod(now + lead, length) + length
end

-- The end of the month that holds now. Years that begin in March make a month's offset in its year linear.
local function month_end(offset)
  local day = floor((now + offset) / 86400000000) + 719468
  local day_of_era = day % 146097
  local era = (day - day_of_era) / 146097
  local year_of_era = floor((day_of_era - floor(day_of_era / 1460) + floor(day_of_era / 36524)
    - floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year_of_era + floor(year_of_era / 4) - floor(year_of_era / 100))
  local month = (era * 400 + year_of_era) * 12 + floor((5 * day_of_year + 2) / 153) + 1
  local year = floor(month / 12)
  year_of_era = year % 400
  local first = (year - year_of_era) / 400 * 146097 + year_of_era * 365 + floor(year_of_era / 4)
    - floor(year_of_era / 100) + floor((153 * (month % 12) + 2) / 5) - 719468
  return first * 86400000000 - offset
end

-- The end of the period that holds now, of one that ends at `finish` and the next, at `next`: whoever asks knows these.
-- Past both, periods of the length of the next one.
local function local_end(finish, next)
  if now < finish then
    return finish
  end
  local length = next - finish
  return now < next and next or now - fmod(now - next, length) + length
end

-- A window that is over says nothing, and less than nothing on the grid of a limit whose length was changed.
local function unless_over(stored)
  if #stored > 0 and now < stored[1] then
    return stored
  end
  return {}
end

-- The window that holds now, as stored or begun anew. A window that has begun is never left for an earlier one.
local function current_window(stored, kind, p)
  local lasting = unless_over(stored)
  if #lasting > 0 then
    return lasting[1], lasting[2]
  end
  if is_month[kind] then
    return month_end(tonumber(ARGV[p + 2])), 0
  elseif is_local[kind] then
    return local_end(tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])), 0
  end
  return even_end(tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])), 0
end

-- A log's newest instant and the sum of its units, or nothing.
local function log_tail(key)
  local tail = ours(try('LRANGE', key, -2, -1), key)
  if #tail == 0 then
    return nil
  end
  local newest = string.match(tail[1], '^(%d+):%d+$')
  if not newest or not tail[2] then
    bad(key)
  end
  return whole(newest, key), whole(tail[2], key)
end

-- Reads a log from its oldest admission on, a few at a time: run(i) is the instant and the units of the i-th.
local function log_reader(key, count)
  local chunk, first = {}, 0
  return function(i)
    if i < first or i >= first + #chunk then
      first, chunk = i, call('LRANGE', key, i, min(i + 31, count - 1))
    end
    local instant, units = string.match(chunk[i - first + 1], '^(%d+):(%d+)$')
    if not instant then
      bad(key)
    end
    return whole(instant, key), whole(units, key)
  end
end

-- Drops the `gone` oldest admissions and adds one at `current`. SlidingLog::charge.
local function add_to_log(key, gone, count, newest, total, current, units, length)
  if gone > 0 then
    call('LTRIM', key, gone, -1)
  end
  if newest then
    call('RPOP', key)
  end
  local last = gone < count and string.match(call('LINDEX', key, -1), ':(%d+)$')
  -- An admission that was handed back in full stood only for its instant, which this one is not before.
  if last and (newest == current or last == '0') then
    call('RPOP', key)
  end
  local merged = newest == current and last or 0
  call('RPUSH', key, string.format('%.0f:%.0f', current, merged + units))
  call('RPUSH', key, string.format('%.0f', total + units))
  call('PEXPIRE', key, ttl(current + length))
end

-- A log as it stands now: its instant, how many and how many units have left, and the reader.
local function log_view(key, newest, length)
  local count = newest and call('LLEN', key) - 1 or 0
  local run = log_reader(key, count)
  local current = newest and max(newest, now) or now
  local gone, gone_units = 0, 0
  while gone < count do
    local instant, units = run(gone)
    if instant + length > current then
      return count, run, current, gone, gone_units, instant
    end
    gone, gone_units = gone + 1, gone_units + units
  end
  return count, run, current, gone, gone_units, nil
end
