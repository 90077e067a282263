-- The next commonest: one ask, a charge of GCRA in whole microseconds and one of a window on an even grid (w) or of a
-- budget on one (b).
-- KEYS: of the bucket, of the window. ARGV: now or '', grace in ms, w or b; time of the cost, depth, time of a unit;
-- cost, limit, length, lead; and the lineage record, see tracked.lua.
-- Answer: now, below zero where the ask is denied; the bucket's instant before or -1; the window's end and use before,
-- or -1 and 0.
-- Mirrors rules.g and rules.w. Whatever is out of the ordinary is left to the rules below: nothing has been written by
-- then.
if last == 11 and (ARGV[3] == 'b' or ARGV[3] == 'w') then
  local stored, window = ours(try('GET', KEYS[1]), KEYS[1]), ours(try('GET', KEYS[2]), KEYS[2])
  local tat, since, unit = -1, now, ARGV[6]
  local ends, used, finish = -1, 0, nil
  if stored then
    local instant, back
    instant, back, unit = match(stored, '^(%d+) (%d+) (%d+)$')
    if unit == ARGV[6] then
      tat = tonumber(instant)
      since = tat - back
      if not (tat < 9007199254740992 and since >= 0) then
        unit = nil
      elseif since < now then
        since = now
      end
    end
  end
  if window then
    local units
    finish, units = match(window, '^(%d+) (%d+)$')
    ends, used = tonumber(finish), tonumber(units)
    if not (ends and ends < 9007199254740992 and used < 9007199254740992) then
      unit = nil
    elseif now >= ends then
      ends, used = -1, 0
    end
  end
  if unit == ARGV[6] then
    local cost = tonumber(ARGV[7])
    local full, left = (tat > now and tat or now) + ARGV[4], ARGV[8] - used
    if full > now + ARGV[5] or left < (ARGV[3] == 'b' and 1 or cost) then
      answer = { -now, tat, ends, used }
    else
      answer = { now, tat, ends, used }
      local life = (full - now - (full - now) % 1000) / 1000 + 1 + ARGV[2]
      call('SET', KEYS[1], digits(full) .. ' ' .. digits(full - since) .. ' ' .. unit, 'PX', digits(life))
      -- A window's key lives as long as the window, from its first charge on. A test's time is not the server's.
      if ends > 0 and ARGV[1] == '' then
        call('SET', KEYS[2], finish .. ' ' .. digits(used + cost), 'KEEPTTL')
      else
        if ends < 0 then
          local length = tonumber(ARGV[9])
          finish = now + length - math.fmod(now + ARGV[10], length)
        else
          finish = ends
        end
        local window_life = math.ceil((finish - now) / 1000) + 1 + ARGV[2]
        call('SET', KEYS[2], digits(finish) .. ' ' .. digits(used + cost), 'PX', digits(window_life))
      end
    end
    if stored and window and try('GET', record) == known then
      return answer
    end
  else
    ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15] = ARGV[3], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
    ARGV[3], ARGV[5], ARGV[7], ARGV[10], ARGV[4], ARGV[6], ARGV[8], ARGV[9] =
      '2', ARGV[4], ARGV[5], ARGV[6], 'g', '0', '0', '1'
    last = 16
  end
end

