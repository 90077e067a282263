-- Answers asks one after another, each by itself, and charges those that pass.
-- KEYS: one per charge, all different within an ask.
-- ARGV: now or '', grace in ms; then per ask: how many charges (negative: any may allow), and per charge its kind and
--   numbers (see SharedForm): g time rest depth depth_rest base unit | w cost limit length lead
--   | m cost limit utc_offset | c cost limit end next_end begin | b, n and d as w, m and c | s cost limit length buckets | l cost limit length
-- Answer: now, then per ask { 1 or 0, state of each charge before }, or { -1, key } where a key holds something foreign.
-- Mirrors Need::check over Rule::decide and Rule::charge. Each rule looks and says what it would write; only an ask
-- that passes writes.

-- a·b ≤ c·d for whole numbers below 2^53, by comparing a/d with c/b as continued fractions.
local function product_fits(a, b, c, d)
  if a * b < EXACT then
    return a * b <= c * d
  end
  while true do
    local left, right = fmod(a, d), fmod(c, b)
    local whole_left, whole_right = (a - left) / d, (c - right) / b
    if whole_left ~= whole_right then
      return whole_left < whole_right
    end
    if left == 0 then
      return true
    end
    if right == 0 then
      return false
    end
    a, b, c, d = b, left, d, right
  end
end

local rules = {}

function rules.g(key, p)
  local time, rest = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  local base, unit = tonumber(ARGV[p + 4]), tonumber(ARGV[p + 5])
  local stored = read_gcra(key)
  local _, _, instant, ticks = charged_gcra(stored, time, rest, unit, base)
  local latest = now + ARGV[p + 2]
  local allowed = instant < latest or (instant == latest and ticks <= tonumber(ARGV[p + 3]))
  local write = (time > 0 or rest > 0) and function()
    write_gcra(key, stored, instant, ticks, unit, base)
  end
  return allowed, told_gcra(stored, unit, base), write
end

function rules.w(key, p, kind)
  local cost, limit = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  local stored = read_window(key)
  local finish, used = current_window(stored, kind, p)
  local write = cost > 0 and function()
    write_window(key, finish, used + cost)
  end
  local needs = crosses[kind] and min(cost, 1) or cost
  return needs <= max(limit - used, 0), unless_over(stored), write
end

rules.m, rules.b, rules.n, rules.c, rules.d = rules.w, rules.w, rules.w, rules.w, rules.w

function rules.s(key, p)
  local cost, limit = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  local length, buckets = tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
  local ring = read_ring(key, buckets)
  local tick, elapsed = bucket_of(ring, length, buckets)
  local sum, leaving = 0, 0
  if #ring > 0 and tick - ring[1] <= buckets then
    for bucket = max(tick - buckets + 1, 0), ring[1] do
      sum = sum + ring[place(bucket, buckets)]
    end
    if tick >= buckets then
      leaving = ring[place(tick - buckets, buckets)]
    end
  end
  local room = limit - sum - cost
  local allowed = room >= 0 and (leaving == 0 or product_fits(leaving, length - elapsed, room, length))
  local seen = { unpack(ring) }
  local write = cost > 0 and function()
    add_to_ring(ring, tick, cost, buckets)
    write_ring(key, ring, length, buckets)
  end
  return allowed, seen, write
end

function rules.l(key, p)
  local cost, limit, length = tonumber(ARGV[p]), tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  local newest, total = log_tail(key)
  local count, run, current, gone, gone_units, oldest = log_view(key, newest, length)
  local used = (total or 0) - gone_units
  local allowed = cost <= max(limit - used, 0)
  local enough, before, through = 0, 0, 0
  if not allowed and cost <= limit then
    local excess, i = used + cost - limit, gone
    while i < count and through < excess do
      local instant, units = run(i)
      enough, before, through, i = instant, through, through + units, i + 1
    end
  end
  local seen = oldest and { newest, used, oldest, enough, before, through } or {}
  local write = cost > 0 and function()
    add_to_log(key, gone, count, newest, used, current, cost, length)
  end
  return allowed, seen, write
end

-- One ask, whose charges stand at these places: whether it passed, and what each found.
local function ask(places, key, any)
  local reply, writes, passed = { 0 }, {}, 0
  for i = 1, #places do
    local kind = ARGV[places[i]]
    local allowed, seen, write = rules[kind](KEYS[key + i], places[i] + 1, kind)
    reply[i + 1] = seen
    passed = allowed and passed + 1 or passed
    if allowed and write then
      writes[#writes + 1] = write
    end
  end
  if passed == #places or (any and passed > 0) then
    reply[1] = 1
    for i = 1, #writes do
      writes[i]()
    end
  end
  return reply
end

