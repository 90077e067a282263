-- A roll that another server wrote may lack the last grants. So none is read until whoever wrote can write no more, and
-- then it begins anew: a fold lets no share rise until all that it does not know of has died, and takes from nobody what
-- it holds.
seal = id
stands = function(sealed)
  local safe_at = sealed == id and now or vouched() + isolation
  if now < safe_at then
    error(string.format('TKBAD %%until %.0f', safe_at), 0)
  end
  return sealed == id
end
