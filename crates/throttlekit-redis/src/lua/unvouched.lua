
-- The same where nothing was evicted. Else { '%since', the record or '', the answer }.
if (found == known or found == known .. '?') and evicted() == string.match(known, '%d+$') then
  if found ~= known then
    try('SET', record, known)
  end
  return answer
end
return { '%since', lineage(string.match(known, '^%?(.?)')) or '', answer }
