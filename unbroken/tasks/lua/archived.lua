-- archived: the result of this task is in the object store; its bulky part may go now.
-- KEYS: task record. ARGV: prefix, id.
-- Replies: 1 | 0 there is no such task any more.
-- flags: allow-oom
-- include: base
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'archived', '1')
redis.call('ZADD', P .. 'done', int(NOW), ARGV[2])
return 1
