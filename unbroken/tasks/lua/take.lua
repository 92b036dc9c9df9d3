-- take: tokens from a bucket, by Redis' clock, checked and taken in one step.
-- KEYS: bucket. ARGV: prefix, rate (per minute), burst, amount.
-- Replies: 0 taken | ms to wait before `amount` would be there. An amount above `burst` takes the whole bucket, so
-- that it is delayed and never impossible.
-- include: base
local rate, burst = tonumber(ARGV[2]) / 60000, tonumber(ARGV[3])
local amount = math.min(tonumber(ARGV[4]), burst)
local f = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = burst
if f[1] then
  level = math.min(burst, tonumber(f[1]) + math.max(0, NOW - tonumber(f[2])) * rate)
  if tonumber(f[2]) > NOW then
    redis.call('HSET', KEYS[1], 'at', int(NOW)) -- the clock was set back; it fills from now on
  end
end
if level < amount then
  return math.ceil((amount - level) / rate)
end
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level - amount), 'at', int(NOW))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate) + 60000)
return 0
