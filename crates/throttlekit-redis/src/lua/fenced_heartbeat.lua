-- Stands after fence.lua. While the server that was replaced may still lend, a lease may be over there and another's, though it
-- is held here: it is not renewed until nobody else can have given it away.
local renew = heartbeat
heartbeat = function(key, member)
  local safe_at = vouched() + isolation
  if now < safe_at then
    error(string.format('TKBAD %%until %.0f', safe_at), 0)
  end
  return renew(key, member)
end
