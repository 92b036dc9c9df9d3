-- hook_end: a callback was delivered or given up (delay '' ), or is tried again in `delay` ms.
-- KEYS: hooks. ARGV: prefix, member, delay ms or '', outcome (a word for people).
-- Replies: 1.
-- flags: allow-oom
-- include: base
local id = string.match(ARGV[2], '^(.*):%d+$')
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[2])
else
  redis.call('ZADD', KEYS[1], 'XX', int(NOW + tonumber(ARGV[3])), ARGV[2])
end
if redis.call('EXISTS', key('task', id)) == 1 then
  redis.call('HSET', key('task', id), 'callback_state', ARGV[4])
end
return 1
