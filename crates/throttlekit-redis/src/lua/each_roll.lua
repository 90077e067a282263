local fine, reply = pcall(roll, KEYS[1])
return { now, fine and reply or foreign(reply) }
