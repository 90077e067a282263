-- What is stored under each key, writing nothing.
-- KEYS: any. ARGV: now or '', grace (unused); then per key its kind: g w m b n c d s l, and for s its buckets.
-- Answer: now, then per key its numbers in full (see SharedForm::state).
local answer, p = { now }, 3
for i = 1, #KEYS do
  local kind = ARGV[p]
  p = p + 1
  if kind == 'g' then
    answer[i + 1] = read_gcra(KEYS[i])
  elseif kind == 's' then
    answer[i + 1] = read_ring(KEYS[i], tonumber(ARGV[p]))
    p = p + 1
  elseif kind == 'l' then
    local numbers, newest = {}, log_tail(KEYS[i])
    if newest then
      local count = call('LLEN', KEYS[i]) - 1
      local run = log_reader(KEYS[i], count)
      for j = 0, count - 1 do
        numbers[#numbers + 1], numbers[#numbers + 2] = run(j)
      end
    end
    answer[i + 1] = numbers
  else
    answer[i + 1] = unless_over(read_window(KEYS[i]))
  end
end
return answer
