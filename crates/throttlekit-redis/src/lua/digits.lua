local format, match = string.format, string.match
-- A whole number below 2^53 in digits, in two halves that integers of every server hold: '%.0f' takes twice as long.
local function digits(number)
  if number < 1000000000 then
    return format('%d', number)
  end
  local low = number % 1000000000
  return format('%d%09d', (number - low) / 1000000000, low)
end

