-- Checks for evictions on behalf of earlier calls on the same connection that answered '%unchecked'. They rest on complete
-- memory if nothing was evicted until now.
-- KEYS[1]: the lineage record. ARGV: now or '', and the record, see tracked.lua.
-- Answer: 0, or as any script that charges where the record is not valid any more.
absent = true
answer = 0

