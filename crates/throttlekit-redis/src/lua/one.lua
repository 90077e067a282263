-- The common case by itself: one ask, one charge, GCRA in whole microseconds.
-- KEYS[1] its key; ARGV: now or '', grace in ms, time of the cost, depth, time of a unit; and the lineage record, see
-- tracked.lua.
-- Answer: now, below zero where the ask is denied, and the instant stored before or -1.
-- Mirrors Gcra::decide and Gcra::charge. What was stored at another pace, or is no state, is left to the rules below:
-- nothing has been written by then.
if last == 6 then
  local stored = ours(try('GET', KEYS[1]), KEYS[1])
  local tat, since, unit = -1, now, ARGV[5]
  if stored then
    local instant, back
    instant, back, unit = match(stored, '^(%d+) (%d+) (%d+)$')
    if unit == ARGV[5] then
      tat = tonumber(instant)
      since = tat - back
      if not (tat < 9007199254740992 and since >= 0) then
        unit = nil
      elseif since < now then
        since = now
      end
    end
  end
  if unit == ARGV[5] then
    local full = (tat > now and tat or now) + ARGV[3]
    if full > now + ARGV[4] then
      answer = { -now, tat }
    else
      local life = (full - now - (full - now) % 1000) / 1000 + 1 + ARGV[2]
      call('SET', KEYS[1], digits(full) .. ' ' .. digits(full - since) .. ' ' .. unit, 'PX', digits(life))
      answer = { now, tat }
    end
    if stored and try('GET', record) == known then
      return answer
    end
  else
    ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10] =
      '1', 'g', ARGV[3], '0', ARGV[4], '0', '1', ARGV[5]
    last = 11
  end
end

