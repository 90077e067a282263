-- The common case by itself: one ask, one charge, GCRA in whole microseconds.
-- KEYS[1] its key; ARGV: now or '', grace in ms, time of the cost, depth.
-- Answer: now, below zero where the ask is denied, and the instant stored before or -1.
-- Mirrors Gcra::decide and Gcra::charge.
if #ARGV == 4 then
  local stored = ours(try('GET', KEYS[1]), KEYS[1])
  local tat = -1
  if stored then
    -- `tonumber` alone would take '0x10' and '1e3' too.
    tat = string.find(stored, '^%d+$') and tonumber(stored)
    if not tat then
      -- A rest of ticks, from before the rate was changed: it counts as a microsecond.
      local instant = string.match(stored, '^(%d+):%d+$')
      tat = instant and instant + 1
    end
    if not (tat and tat < 9007199254740992) then
      error('TKBAD ' .. KEYS[1], 0)
    end
  end
  local full = (tat > now and tat or now) + ARGV[3]
  if full > now + ARGV[4] then
    return { -now, tat }
  end
  local life = (full - now - (full - now) % 1000) / 1000 + 1 + ARGV[2]
  call('SET', KEYS[1], string.format('%.0f', full), 'PX', string.format('%.0f', life))
  return { now, tat }
end
