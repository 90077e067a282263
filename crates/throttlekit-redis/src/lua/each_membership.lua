local fine, reply = pcall(membership, KEYS[1])
return { now, fine and reply or foreign(reply) }
