-- Grants a region more of the budget that it shares with others.
-- KEYS: the pool. ARGV: now or '', grace in ms; then 'p'; the kind of window and the numbers of a charge of nothing (see
--   SharedForm); the region's name, its weight, and how many units more it wants.
-- Answer: now, { granted, end of the window, held, share, others }; see Sight. Or now, { -1, key } where the key holds
--   something foreign, { -2 } where there are too many regions.
-- Mirrors Pool::grant.
local REGIONS_MAX = 256
local rules = {}

-- Weight · units / total, rounded down. Where the product has more bits than a double, by digits of four bits: a weight is
-- at most 2^40 and total at most 2^48, so no step is above 2^53.
local function part(weight, units, total)
  if total == 0 then
    return 0
  end
  local product = weight * units
  if product < EXACT then
    return (product - fmod(product, total)) / total
  end
  local share, rest, place = 0, 0, 4503599627370496
  while place >= 1 do
    local digit = floor(units / place)
    units = units - digit * place
    local sum = rest * 16 + weight * digit
    rest = fmod(sum, total)
    share = share * 16 + (sum - rest) / total
    place = place / 16
  end
  return share
end

-- What is left for how much weight. Level::of, which takes them in order of what they hold for their weight; doubles come
-- close to that order, and any leads to the same level.
local function level(regions, units)
  local order, left, total = {}, units, 0
  for i, region in ipairs(regions) do
    order[i] = region
    total = total + region.weight
  end
  table.sort(order, function(a, b)
    return a.granted / a.weight > b.granted / b.weight
  end)
  local had, again = {}, true
  while again do
    again = false
    for i, region in ipairs(order) do
      if not had[i] and region.granted > part(region.weight, left, total) then
        had[i], again = true, true
        left, total = max(left - region.granted, 0), total - region.weight
      end
    end
  end
  return left, total
end

function rules.p(key, p)
  local kind = ARGV[p]
  local q = p + 1 + numbers_of[kind]
  local units, name, weight, wants = tonumber(ARGV[p + 2]), ARGV[q], tonumber(ARGV[q + 1]), tonumber(ARGV[q + 2])
  local stored = read_pool(key)
  local finish = current_window(stored, kind, p + 1)
  local regions = stored[1] == finish and stored.regions or {}
  local own
  for _, region in ipairs(regions) do
    own = region.name == name and region or own
  end
  if not own then
    if #regions >= REGIONS_MAX then
      return false, { -2 }
    end
    own = { name = name, granted = 0 }
    regions[#regions + 1] = own
  end
  local changes = own.weight ~= weight
  own.weight = weight
  local left, total = level(regions, units)
  local held, share, others = own.granted, part(weight, left, total), 0
  for _, region in ipairs(regions) do
    if region ~= own then
      others = others + max(region.granted, part(region.weight, left, total))
    end
  end
  local ceiling = held > share and held or units - others
  local granted = max(min(wants, ceiling - held), 0)
  own.granted = held + granted
  return changes or granted > 0, { granted, finish, held, share, others }, function()
    write_pool(key, finish, regions)
  end
end
