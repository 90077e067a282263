-- Lets a rule charge only what this server can vouch for. docs/contribute/decisions/0011-fence.md has the argument.
-- Stands after the rules and before what asks them: wraps each, so that a charge that would pass is refused where units
-- may have been lost, before anything is written.
-- KEYS, after those of the charges: as many seals, one beside each; then the lineage record.
-- ARGV, last: for how long a server that was replaced may still have charged, in µs.
local isolation = tonumber(table.remove(ARGV))
local DAY = 86400 * 1000000

-- The lineage record, and since when this server vouches for its memory. Looked at again where a key is found absent
-- after the first look: then evictions count too.
local value, since, looked_absent
local function vouched()
  if not value or (absent and not looked_absent) then
    value, since = lineage('f')
    looked_absent = absent
    if not value then
      error('TKNOID', 0)
    end
  end
  return since
end

-- When at the latest nothing that was lost counts any more, by kind: from then on a missing charge changes no answer.
local healed = {}

function healed.g(safe, key, p)
  return safe + ARGV[p + 2] + 1
end

-- Where the window that ends at `finish` begins. Thirty-two days before a month's end lie in the month before it.
local function beginning(finish, kind, p)
  if is_local[kind] then
    -- Of any but the two periods that are known, nothing is: then the whole of it is taken as lost.
    local known, next = tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
    return finish == known and tonumber(ARGV[p + 4]) or (finish == next and known) or 0
  end
  if not is_month[kind] then
    return finish - ARGV[p + 2]
  end
  local instant = now
  now = finish - 32 * DAY
  local start = month_end(tonumber(ARGV[p + 2]))
  now = instant
  return start
end

local function healed_window(safe, stored, kind, p)
  local finish = current_window(stored, kind, p)
  local start = beginning(finish, kind, p)
  if safe <= start then
    return now
  end
  if safe <= finish then
    return finish
  end
  -- No local period is longer than a month on whose end clocks are set back.
  return safe + (is_month[kind] and 31 * DAY or is_local[kind] and 32 * DAY or finish - start)
end

function healed.w(safe, key, p, kind)
  return healed_window(safe, read_window(key), kind, p)
end

healed.m, healed.b, healed.n, healed.c, healed.d = healed.w, healed.w, healed.w, healed.w, healed.w

function healed.p(safe, key, p)
  return healed_window(safe, read_pool(key), ARGV[p], p + 1)
end

function healed.s(safe, key, p)
  local length = tonumber(ARGV[p + 2])
  return safe + length + ceil(length / ARGV[p + 3])
end

function healed.l(safe, key, p)
  return safe + ARGV[p + 2]
end

-- A lease or a heartbeat that was lost is over for its owner after its life.
function healed.h(safe, key, p)
  return safe + ARGV[p + 2]
end

for kind, rule in pairs(rules) do
  rules[kind] = function(key, p)
    local allowed, seen, write = rule(key, p, kind)
    if not (allowed and write) then
      return allowed, seen, write
    end
    local safe = vouched() + isolation
    -- A seal names the record under which the state was charged. Once anything is lost the record is another.
    local seal = key .. '%id'
    local sealed = try('GET', seal) == value
    if not sealed then
      local safe_at = healed[kind](safe, key, p, kind)
      if now < safe_at then
        error(string.format('TKBAD %%until %.0f', safe_at), 0)
      end
    end
    -- A window's seal lasts as long as the window.
    if sealed and (healed[kind] == healed.w or kind == 'p') then
      return allowed, seen, write
    end
    return allowed, seen, function()
      write()
      call('SET', seal, value, 'PX', call('PTTL', key))
    end
  end
end
