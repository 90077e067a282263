-- A record that was written under another lineage may lack the last grants. So none is read until its writer can write no
-- more, and then it starts over: the rebalancer lets no share rise until all unknown grants have expired, and takes nothing
-- from any holder.
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

