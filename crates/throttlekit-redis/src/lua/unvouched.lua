-- The same where nothing was evicted. Else { '%since', the record or '', the answer }.
if is_known and evicted() == string.match(known, '%d+$') then
  return answer
end
return { '%since', lineage(string.match(known, '^%?(.?)')) or '', answer }
