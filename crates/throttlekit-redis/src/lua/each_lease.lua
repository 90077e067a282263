local answer, i, p = { now }, 0, 3
while p <= #ARGV do
  local kind = ARGV[p]
  i = i + 1
  local fine, lends, reply, write = pcall(rules[kind], KEYS[i], p + 1, kind)
  if not fine then
    -- A foreign value is that ask's affair alone; it ended before it wrote.
    local bad_key = type(lends) == 'string' and string.match(lends, '^TKBAD (.*)$')
    if not bad_key then
      error(lends, 0)
    end
    reply = { -1, bad_key }
  elseif lends then
    write()
  end
  answer[i + 1] = reply
  p = p + 1 + numbers_of[kind] + 3
end
return answer
