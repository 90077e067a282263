-- ARGV, last: the lineage record as the caller knows it, or '?' and the mode where it knows none. In a cluster the key of
-- the record stands before it.
local last = #ARGV
local known, record = ARGV[last], 'tk:{%since}'
if string.byte(known) == 116 then
  record, known = string.match(known, '^(%S+) (.*)$')
end
local answer

