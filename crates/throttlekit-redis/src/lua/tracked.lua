-- ARGV, last: the lineage record as the caller knows it, or '?' and the mode where it knows none. '+' before it: the caller
-- may check for evictions after this call (vouched.lua). In a cluster the key of the record stands before it.
local last = #ARGV
local known, record, defers = ARGV[last], 'tk:{%since}', false
if string.byte(known) == 116 then
  record, known = string.match(known, '^(%S+) (.*)$')
end
if string.byte(known) == 43 then
  known, defers = string.sub(known, 2), true
end
local answer

