local fine, taken, reply, write = pcall(rules.h, KEYS[1], 4)
if not fine then
  reply = foreign(taken)
elseif write then
  write()
end
return { now, reply }
