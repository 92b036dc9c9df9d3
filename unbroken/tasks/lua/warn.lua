-- warn: a visible word on a running task (a checkpoint that had to be passed over). Changes nothing else.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, text ('' takes it away).
-- Replies: {OK} | {LOST, state}.
-- Fenced as every write of a worker: a task that was deleted meanwhile must not come back as a key with one field.
-- flags: allow-oom
-- include: base held
local f = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'lease')
local t = {id = ARGV[2], state = f[1], epoch = f[2], lease = f[3]}
if not f[1] then
  return {'LOST', 'gone'}
end
if not held(t) then
  return not_held(t)
end
redis.call('HSET', KEYS[1], 'warning', ARGV[5])
return {'OK'}
