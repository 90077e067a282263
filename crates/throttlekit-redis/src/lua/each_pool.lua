local fine, grants, reply, write = pcall(rules.p, KEYS[1], 4)
if not fine then
  local bad_key = type(grants) == 'string' and string.match(grants, '^TKBAD (.*)$')
  if not bad_key then
    error(grants, 0)
  end
  reply = { -1, bad_key }
elseif grants then
  write()
end
return { now, reply }
