local answer = { now }
for i = 1, #ARGV - 3 do
  local fine, reply = pcall(heartbeat, KEYS[i], ARGV[3 + i])
  answer[i + 1] = fine and reply or foreign(reply)
end
return answer
