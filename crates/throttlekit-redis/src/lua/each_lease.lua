local answer, i, p = { now }, 0, 3
while p <= #ARGV do
  local kind = ARGV[p]
  i = i + 1
  local fine, lends, reply, write = pcall(rules[kind], KEYS[i], p + 1, kind)
  if not fine then
    reply = foreign(lends)
  elseif lends then
    write()
  end
  answer[i + 1] = reply
  p = p + 1 + numbers_of[kind] + 3
end
return answer
