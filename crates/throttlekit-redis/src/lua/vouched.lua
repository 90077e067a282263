-- The answer as it is, where the caller knows the lineage record and nothing that was looked for is missing.
answer = answer or main()
local found = try('GET', record)
if found == known and not absent then
  return answer
end

-- { '%unchecked', the answer }, where the caller checks for evictions afterwards. Until somebody has, the record is marked,
-- so that nobody trusts a state that may have been evicted and written again. Where it cannot be, the check is made here.
if defers and (found == known .. '?' or (found == known and not try('SET', record, known .. '?').err)) then
  return { '%unchecked', answer }
end

