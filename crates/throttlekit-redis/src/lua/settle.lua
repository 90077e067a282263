-- Replaces what charges took by what was used.
-- KEYS: one per correction. ARGV: now or '', grace in ms; then per correction '-' (hand back) or '+' (take without
--   asking), its kind and numbers (see Correction):
--   - g mark time rest depth depth_rest base unit | - w, m, b, n, c or d end units | - s bucket units length buckets
--   - l instant units length | + as in admit.lua
-- Mirrors Settle::refund and Settle::owe.
-- How many numbers a refund of each kind has; a debt has those of a charge.
local refund_numbers_of = { g = 7, w = 2, m = 2, b = 2, n = 2, c = 2, d = 2, s = 4, l = 3 }

-- Written at the end, when every key has shown that it is ours.
local refund, owe, writes = {}, {}, {}

local function later(write, ...)
  local args = { ... }
  writes[#writes + 1] = function()
    write(unpack(args))
  end
end

-- (a, a_rest) - (b, b_rest), or zero where that is less.
local function minus(a, a_rest, b, b_rest, base)
  local time, rest = a - b, a_rest - b_rest
  if rest < 0 then
    time, rest = time - 1, rest + base
  end
  if time < 0 then
    return 0, 0
  end
  return time, rest
end

function refund.g(key, p)
  local mark, base, unit = tonumber(ARGV[p]), tonumber(ARGV[p + 5]), tonumber(ARGV[p + 6])
  local stored = read_gcra(key)
  if #stored > 0 then
    local instant, rest = carried_gcra(stored, unit, base)
    local latest, latest_rest = minus(instant, rest, tonumber(ARGV[p + 3]), tonumber(ARGV[p + 4]), base)
    if latest < now then
      latest, latest_rest = now, 0
    end
    local elapsed, elapsed_rest = minus(latest, latest_rest, mark, 0, base)
    if not is_own(stored, unit, base) then
      -- What has come back at the other pace is not handed back either.
      local by_old = time_at(stored, elapsed + (elapsed_rest > 0 and 1 or 0), 0, unit, base)
      if by_old > elapsed then
        elapsed, elapsed_rest = by_old, 0
      end
    end
    local back, back_rest = minus(tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2]), elapsed, elapsed_rest, base)
    if back > 0 or back_rest > 0 then
      local after, after_rest = minus(instant, rest, back, back_rest, base)
      later(write_gcra, key, stored, after, after_rest, unit, base)
    end
  end
end

function owe.g(key, p)
  local time, rest = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  local base, unit = tonumber(ARGV[p + 4]), tonumber(ARGV[p + 5])
  local stored = read_gcra(key)
  local before, before_rest, instant, ticks = charged_gcra(stored, time, rest, unit, base)
  if instant >= now + DEBT_MAX then
    instant, ticks = now + DEBT_MAX, 0
  end
  if instant > before or (instant == before and ticks > before_rest) then
    later(write_gcra, key, stored, instant, ticks, unit, base)
  end
end

function refund.w(key, p)
  local stored = read_window(key)
  if #stored > 0 and stored[1] == tonumber(ARGV[p]) then
    later(write_window, key, stored[1], max(stored[2] - ARGV[p + 1], 0))
  end
end

function owe.w(key, p, kind)
  local finish, used = current_window(read_window(key), kind, p)
  later(write_window, key, finish, min(used + ARGV[p], EXACT - 1))
end

refund.m, refund.b, refund.n, refund.c, refund.d = refund.w, refund.w, refund.w, refund.w, refund.w
owe.m, owe.b, owe.n, owe.c, owe.d = owe.w, owe.w, owe.w, owe.w, owe.w

function refund.s(key, p)
  local tick, length, buckets = tonumber(ARGV[p]), tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
  local ring = read_ring(key, buckets)
  if #ring > 0 and tick <= ring[1] and ring[1] - tick <= buckets then
    local at = place(tick, buckets)
    ring[at] = max(ring[at] - ARGV[p + 1], 0)
    later(write_ring, key, ring, length, buckets)
  end
end

function owe.s(key, p)
  local length, buckets = tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
  local ring = read_ring(key, buckets)
  add_to_ring(ring, bucket_of(ring, length, buckets), tonumber(ARGV[p]), buckets)
  later(write_ring, key, ring, length, buckets)
end

-- What is left of an admission, and of the sum. Nothing left: it goes, unless its instant is the newest, which holds
-- the log's time.
local function hand_back(key, index, count, instant, units, total)
  if units == 0 and index < count - 1 then
    call('LSET', key, index, 'gone')
    call('LREM', key, 1, 'gone')
  else
    call('LSET', key, index, string.format('%.0f:%.0f', instant, units))
  end
  call('LSET', key, -1, string.format('%.0f', total))
end

function refund.l(key, p)
  local mark = tonumber(ARGV[p])
  local newest, total = log_tail(key)
  local count = newest and call('LLEN', key) - 1 or 0
  local run = log_reader(key, count)
  -- Instants rise, so the admission is found by halving.
  local low, high = 0, count - 1
  while low <= high do
    local middle = floor((low + high) / 2)
    local instant, units = run(middle)
    if instant == mark then
      local back = min(tonumber(ARGV[p + 1]), units)
      later(hand_back, key, middle, count, instant, units - back, total - back)
      break
    elseif instant < mark then
      low = middle + 1
    else
      high = middle - 1
    end
  end
end

function owe.l(key, p)
  local length = tonumber(ARGV[p + 2])
  local newest, total = log_tail(key)
  local count, _, current, gone, gone_units = log_view(key, newest, length)
  local used = (total or 0) - gone_units
  local units = min(tonumber(ARGV[p]), EXACT - 1 - used)
  if units > 0 then
    later(add_to_log, key, gone, count, newest or false, used, current, units, length)
  end
end

local p = 3
for i = 1, #KEYS do
  local hands_back, kind = ARGV[p] == '-', ARGV[p + 1]
  local way = hands_back and refund or owe
  way[kind](KEYS[i], p + 2, kind)
  p = p + 2 + (hands_back and refund_numbers_of or numbers_of)[kind]
end
for i = 1, #writes do
  writes[i]()
end
return now
