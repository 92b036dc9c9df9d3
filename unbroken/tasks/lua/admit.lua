-- admit: at most so many in any minute, by Redis' clock. Unlike a bucket it never lets a burst and a minute's worth pass
-- together: the times of the last `limit` are kept, and the oldest of them decides.
-- KEYS: list of times, newest first. ARGV: prefix, limit.
-- Replies: 0 admitted | ms to wait.
-- include: base
local limit = tonumber(ARGV[2])
if tonumber(redis.call('LINDEX', KEYS[1], 0) or '0') > NOW + 1000 then
  redis.call('DEL', KEYS[1]) -- the clock was set back: what is noted there says nothing any more
end
local oldest = tonumber(redis.call('LINDEX', KEYS[1], limit - 1) or '0')
local wait = oldest + 60000 - NOW
if wait > 0 then
  return math.min(wait, 60000)
end
redis.call('LPUSH', KEYS[1], int(NOW))
redis.call('LTRIM', KEYS[1], 0, limit - 1)
redis.call('PEXPIRE', KEYS[1], 60000)
return 0
