-- How each rule's state is kept, by kind:
--   g  string "instant" or "instant:rest"           Gcra: when the bucket is full again
--   w  string "end used"                            Window, on even grids (w) and by months (m), and
--                                                  budgets on both (b and n)
--   s  string, packed array: tick, counts           SlidingWindow
--   l  list of "instant:units", then their sum      SlidingLog
--   p  string "end name weight granted name …"      Pool, of each region that has asked in the window
-- All times are whole microseconds, all numbers whole and below 2^53, so doubles are exact. Numbers are written by
-- '%.0f', never by tostring, which loses digits from 1e14 on, nor by the server, which in some versions writes 1e+15.
-- What is not a state ends the script before it writes.
local EXACT = 9007199254740992
local floor, ceil, fmod, max, min = math.floor, math.ceil, math.fmod, math.max, math.min

-- How many numbers a charge of each kind has.
local numbers_of = { g = 5, w = 4, m = 3, b = 4, n = 3, s = 4, l = 3 }
local is_month = { m = true, n = true }
-- Budgets, which an ask may cross while any unit is left.
local crosses = { b = true, n = true }

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

local function read_gcra(key)
  local stored = ours(try('GET', key), key)
  if not stored then
    return {}
  end
  local instant, rest = string.match(stored, '^(%d+):?(%d*)$')
  if not instant then
    bad(key)
  end
  return { whole(instant, key), rest == '' and 0 or whole(rest, key) }
end

local function write_gcra(key, instant, rest)
  local value = rest == 0 and string.format('%.0f', instant) or string.format('%.0f:%.0f', instant, rest)
  call('SET', key, value, 'PX', ttl(instant + 1))
end

-- A bucket as stored. A rest from before the rate was changed may be none now: then it counts as a microsecond.
local function carried_gcra(stored, base)
  if stored[2] >= base then
    return stored[1] + 1, 0
  end
  return stored[1], stored[2]
end

-- The bucket of a key as it stands now, and after a charge: instants and rests in ticks, `base` of them a microsecond.
local function charged_gcra(stored, time, rest, base)
  local instant, ticks = now, 0
  if #stored > 0 and stored[1] >= now then
    instant, ticks = carried_gcra(stored, base)
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
