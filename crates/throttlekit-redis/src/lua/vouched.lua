-- The answer as it is, where the caller knows the lineage record and nothing that was looked for is missing.
answer = answer or main()
local is_known = try('GET', record) == known
if is_known and not absent then
  return answer
end

