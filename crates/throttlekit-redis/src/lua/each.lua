local answer, key, p = { now }, 0, 3
while p <= #ARGV do
  local count = tonumber(ARGV[p])
  local places = {}
  p = p + 1
  for i = 1, math.abs(count) do
    places[i], p = p, p + 1 + numbers_of[ARGV[p]]
  end
  local fine, reply = pcall(ask, places, key, count < 0)
  if not fine then
    reply = foreign(reply)
  end
  key = key + #places
  answer[#answer + 1] = reply
end
return answer
