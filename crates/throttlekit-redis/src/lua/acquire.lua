-- Takes a slot under a lease.
-- KEYS: the key. ARGV: now or '', grace in ms; then 'h'; lease and owner, the ceiling, and how long it lives in µs.
-- Answer: now, { 1 or 0, instant, how many were held, end of the asker's own lease or 0, when there is room or 0 }; or
--   now, { -1, key } where the key holds something foreign.
-- Mirrors SlotTable::acquire. Looks, and says what it would write.
local rules = {}

function rules.h(key, p)
  local member, most, lives = ARGV[p], tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  local over, held, longest, late = look(key)
  local own = own_end(key, member, longest)
  local taken = own ~= nil or held < most
  local room
  if not own and most > 0 and held >= most then
    local place = 1 + over + held - most
    room = min(whole(call('ZRANGE', key, place, place, 'WITHSCORES')[2], key), now + longest)
  end
  local write = function()
    advance(key, over, longest, late)
    if taken then
      longest = max(longest, lives)
    end
    if taken and not own then
      enter(key, member, now + lives)
      held = held + 1
    end
    -- Written again though nothing changed where it comes again: whoever waits for replicas waits for the lease as well.
    changed(key, held, longest)
  end
  local writes = taken or over > 0 or late > 0
  return taken, { taken and 1 or 0, now, held, own or 0, room or 0 }, writes and write or nil
end
