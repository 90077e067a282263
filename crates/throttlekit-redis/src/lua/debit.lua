-- Charges debits that have names, each once. Stands after the rules of admit.lua.
-- KEYS: one per debit, all windows; then one per debit where the last debit of its stream is kept, as the string
--   "until number cost instant charged end used", without the last two where nothing was stored under its key.
-- ARGV: now or '', grace in ms; then per debit its kind and the numbers of a charge (see SharedForm), its number, its
--   cost, and for how long it is remembered, in µs.
-- Answer: now, then per debit { 1 or 0, state before }; { 2, instant, cost, 1 or 0, state before } as it was answered
--   then, where it comes again; { 3 } where a later one came first; or { -1, key } where a key holds something foreign.
-- Mirrors Debit::repeats.
local function last_of(name)
  local stored = ours(try('GET', name), name)
  if not stored then
    return nil
  end
  local expires, number, cost, instant, charged, finish, used =
    string.match(stored, '^(%d+) (%d+) (%d+) (%d+) ([01]) ?(%d*) ?(%d*)$')
  if not expires then
    bad(name)
  end
  local state = finish == '' and {} or { whole(finish, name), whole(used, name) }
  return {
    stored = stored, expires = whole(expires, name), number = whole(number, name),
    -- A cost beyond every limit is kept as 2^53, which is no number of a state.
    reply = { 2, whole(instant, name), tonumber(cost), tonumber(charged), state },
  }
end

local function keep(name, value, expires)
  call('SET', name, value, 'PX', ttl(expires))
end

local function debit(key, name, kind, p)
  local q = p + numbers_of[kind]
  local number, last = tonumber(ARGV[q]), last_of(name)
  if last and now < last.expires and number <= last.number then
    if number < last.number then
      return { 3 }
    end
    -- Written again though nothing changed: whoever waits for replicas then waits for the charge as well.
    keep(name, last.stored, last.expires)
    return last.reply
  end
  local allowed, seen, write = rules[kind](key, p, kind)
  if allowed and write then
    write()
  end
  local expires, charged = now + ARGV[q + 2], allowed and 1 or 0
  local value = string.format('%.0f %s %s %.0f %d', expires, ARGV[q], ARGV[q + 1], now, charged)
  if #seen > 0 then
    value = value .. string.format(' %.0f %.0f', seen[1], seen[2])
  end
  keep(name, value, expires)
  return { charged, seen }
end

local answer, count, i, p = { now }, 0, 0, 3
while p <= #ARGV do
  count, p = count + 1, p + 4 + numbers_of[ARGV[p]]
end
p = 3
while p <= #ARGV do
  i = i + 1
  local fine, reply = pcall(debit, KEYS[i], KEYS[count + i], ARGV[p], p + 1)
  if not fine then
    reply = foreign(reply)
  end
  answer[i + 1] = reply
  p = p + 4 + numbers_of[ARGV[p]]
end
return answer
