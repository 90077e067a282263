local fine, grants, reply, write = pcall(rules.p, KEYS[1], 4)
if not fine then
  reply = foreign(grants)
elseif grants then
  write()
end
return { now, reply }
