-- A roll that was written under another lineage may lack the last grants. So none is read until whoever wrote can write
-- no more, and then it begins anew: a fold lets no share rise until all that it does not know of has died, and takes from
-- nobody what it holds.
stands = function(sealed)
  local safe_at = vouched() + isolation
  seal = (string.gsub(value, ' ', ':'))
  if sealed == seal then
    return true
  end
  if now < safe_at then
    error(string.format('TKBAD %%until %.0f', safe_at), 0)
  end
  return false
end

