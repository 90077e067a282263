-- Since when this server's memory is complete: nothing was lost by a flush, an eviction, a restart or a promotion.
-- Kept in the lineage record, the key named by `record`: one for a server, in a cluster one in each slot. It holds
-- "id since swaps evicted": the replication id of the server that wrote it, an instant in µs, how often databases were
-- swapped by then, and how many keys were evicted. A flush takes it along with the states; a restart or a promotion changes
-- the id; a swap or an eviction its count. It ends in '?' from the first call whose caller checks for evictions afterwards
-- until a check: then states that were written meanwhile may stand for evicted ones, and are not trusted.
-- docs/contribute/decisions/0022-lineage.md has the argument.

-- Commands after which states may be gone, or have been on another node. CONFIG RESETSTAT clears the list of what was
-- run, and then is the first on it.
local LOSING = { 'flushall', 'flushdb', 'swapdb', 'debug', 'cluster|reset', 'cluster|flushslot', 'cluster|setslot',
  'config|resetstat' }
-- Commands by which a replica becomes a primary. In a cluster it takes none.
local PROMOTING = { 'replicaof', 'slaveof', 'psync', 'failover', 'cluster|failover' }
-- Those that only a replica is sent. Any primary with replicas has run PSYNC.
local PROMOTED_BY = { 'replicaof', 'slaveof' }
-- For how long a promoted server is sure to report its former id: repl-backlog-ttl is an hour by default. In µs.
local REMEMBERED = 3590 * 1000000

local function was_run(info, commands)
  for i = 1, #commands do
    if string.find(info, 'cmdstat_' .. commands[i] .. ':', 1, true) then
      return true
    end
  end
  return false
end

local function evicted_in(info)
  local at = string.find(info, 'evicted_keys:', 1, true)
  return at and string.match(info, '^%d+', at + 13)
end

-- How many keys the server has evicted since its start, as text; nil where INFO is not allowed.
local function evicted()
  local info = try('INFO', 'stats')
  return type(info) == 'string' and evicted_in(info) or nil
end

local function swaps_in(info)
  return string.match(info, 'cmdstat_swapdb:calls=(%d+)') or '0'
end

-- Since when the memory of a server without a valid record is complete. One that was never promoted, flushed nothing and
-- evicted nothing has had it since its start.
local function begun(info, found)
  local in_cluster = string.find(info, 'cluster_enabled:1', 1, true)
  local is_new = string.find(info, 'master_replid2:0+%s') and evicted_in(info) == '0' and not was_run(info, LOSING)
  -- In a cluster a record may have come with its slot: what its node lost is not known here. A test's clock says nothing of
  -- the server's.
  if not is_new or (in_cluster and found) or ARGV[1] ~= '' then
    return now
  end
  -- Both ends are cut to seconds.
  local up = (string.match(info, 'uptime_in_seconds:(%d+)') - 1) * 1000000
  if in_cluster or was_run(info, PROMOTING) then
    up = math.min(up, REMEMBERED)
  end
  return now - up
end

-- Whether a record came back with the memory of its time, since databases were swapped: it is older than the one that the
-- caller knows, or, to a caller that knows none, of another count.
local function was_swapped(stored, since, swaps)
  local expected = string.match(known, '^%x+ (%-?%d+) ')
  if expected then
    return stored ~= known and tonumber(since) <= tonumber(expected)
  end
  return swaps_in(call('INFO', 'commandstats')) ~= swaps
end

-- Leaves a state that was absent to those who can check: marks the record that is there.
local function unknown(found)
  if absent and type(found) == 'string' and string.sub(found, -1) ~= '?' then
    try('SET', record, found .. '?')
  end
end

-- The record of this server and its instant, written anew where something may be lost; nothing where neither can be known:
-- INFO is not allowed, or the slot is being moved. Modes: 'f' for a fence, 'w' where charges wait for all replicas, 'a' on a
-- node that is being given the slot, where nothing may be written that is not there yet.
local function lineage(mode)
  local found, replication = try('GET', record), try('INFO', 'replication')
  local own = type(replication) == 'string' and string.match(replication, 'master_replid:(%x+)')
  if not own or type(found) == 'table' then
    return unknown(found)
  end
  local stored, unchecked = string.match(found or '', '^(.-)(%??)$')
  local id, since, swaps, count = string.match(stored, '^(%x+) (%-?%d+) (%d+) (%d+)$')
  local is_checked = not absent and unchecked == ''
  if id == own and not was_swapped(stored, since, swaps) and (is_checked or evicted() == count) then
    if unchecked ~= '' then
      try('SET', record, stored)
    end
    return stored, tonumber(since)
  end
  if mode == 'a' then
    return unknown(found)
  end
  local info = call('INFO', 'server', 'replication', 'stats', 'commandstats', 'cluster')
  -- A replica that has all charges took over by command, in this run: it goes on where the other stopped.
  -- A restarted primary names its former id too, where it loaded a dump.
  local follows = mode == 'w' and id and unchecked == '' and evicted_in(info) == '0' and was_run(info, PROMOTED_BY)
    and string.find(info, 'master_replid2:' .. id, 1, true)
  since = follows and tonumber(since) or begun(info, found)
  local value = string.format('%s %.0f %s %s', own, since, swaps_in(info), evicted_in(info))
  local written = try('SET', record, value)
  return not written.err and value or nil, since
end
