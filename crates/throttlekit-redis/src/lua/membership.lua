-- Swaps a membership record for the next, or returns the current one.
-- KEYS: the record; in a fence as fence.lua has it. ARGV: now or '', grace in ms; the version that must be there, 0 for none,
--   or '' to load; the next record; for how many ms it is kept.
-- Answer: now, { 1 } if it was swapped, else { 0, version, record }. Or now, { -1, key } where the key holds something
--   foreign.
-- It is stored as "version seal record". The seal is the id of the server that wrote it, in a fence, and '-' elsewhere.
-- Mirrors MembershipRecords::swap.
local rules = {}
local seal = '-'
local function stands()
  return true
end

local function membership(key)
  local stored = ours(try('GET', key), key)
  local version, sealed, at = 0, nil, 1
  if stored then
    version, sealed, at = string.match(stored, '^(%d+) (%S+) ()')
    if not version then
      bad(key)
    end
    version = whole(version, key)
  end
  if not stands(sealed) then
    stored, version, at = nil, 0, 1
  end
  if ARGV[3] == '' or tonumber(ARGV[3]) ~= version then
    return { 0, version, string.sub(stored or '', at) }
  end
  call('SET', key, string.format('%.0f %s ', max(now, version + 1), seal) .. ARGV[4], 'PX', ARGV[5])
  return { 1 }
end
