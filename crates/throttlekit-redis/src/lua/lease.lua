-- Lends units to nodes that spend them by themselves: as many as they want, as their share of what is left, and as are
-- left, but at least the least or none. A budget of which any are left lends the least though that crosses its edge.
-- KEYS: one per ask. ARGV: now or '', grace in ms; then per ask: its kind, the numbers of a charge of one unit (see
--   SharedForm; none where the least can never be lent), and how many it wants, the least, and one part in how many.
-- Answer: now, then per ask { units lent, state before }, or { -1, key } where a key holds something foreign.
-- Mirrors Authority::lend. Each rule looks and says what it would write, as in admit.lua.
local rules = {}

local function divided_up(a, b)
  local rest = fmod(a, b)
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- How many of the units left an ask gets, from its numbers at `p`.
local function granted_of(left, p, kind)
  local wants, least, share = tonumber(ARGV[p]), tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  local units = min(wants, max(divided_up(left, share), least), left)
  if units >= least then
    return units
  end
  return crosses[kind] and left > 0 and least or 0
end

function rules.g(key, p)
  local unit, unit_rest = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  local base, pace = tonumber(ARGV[p + 4]), tonumber(ARGV[p + 5])
  local stored = read_gcra(key)
  local instant, ticks = charged_gcra(stored, 0, 0, pace, base)
  local room, room_rest = now + ARGV[p + 2] - instant, ARGV[p + 3] - ticks
  if room_rest < 0 then
    room, room_rest = room - 1, room_rest + base
  end
  -- SharedForm sees to it that this stays exact.
  local function time_of(units)
    local rest = units * unit_rest
    local over = fmod(rest, base)
    return units * unit + (rest - over) / base, over
  end
  local function fits(units)
    local time, rest = time_of(units)
    return time < room or (time == room and rest <= room_rest)
  end
  -- Doubles come close; the rule is exact.
  local left = max(floor((room + room_rest / base) / (unit + unit_rest / base)), 0)
  while left > 0 and not fits(left) do
    left = left - 1
  end
  while fits(left + 1) do
    left = left + 1
  end
  local granted = granted_of(left, p + 6, 'g')
  return granted > 0, { granted, told_gcra(stored, pace, base) }, function()
    local time, rest = time_of(granted)
    local _, _, after, after_ticks = charged_gcra(stored, time, rest, pace, base)
    write_gcra(key, stored, after, after_ticks, pace, base)
  end
end

function rules.w(key, p, kind)
  local stored = read_window(key)
  local finish, used = current_window(stored, kind, p)
  local granted = granted_of(max(ARGV[p + 1] - used, 0), p + numbers_of[kind], kind)
  return granted > 0, { granted, unless_over(stored) }, function()
    write_window(key, finish, used + granted)
  end
end

rules.m, rules.b, rules.n, rules.c, rules.d = rules.w, rules.w, rules.w, rules.w, rules.w
