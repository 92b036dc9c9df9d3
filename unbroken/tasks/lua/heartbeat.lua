-- heartbeat: the holder is alive although its model is silent.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, lease ms.
-- Replies: {OK, wish} | {LOST, state}. A lease that has run out but was not reaped may still be renewed by its holder.
-- flags: allow-oom
-- include: base held
local f = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'lease', 'wish')
local t = {id = ARGV[2], state = f[1], epoch = f[2], lease = f[3]}
if not f[1] then
  return {'LOST', 'gone'}
end
if not held(t) then
  return not_held(t)
end
redis.call('HSET', KEYS[1], 'lease_until', renew(t, tonumber(ARGV[5])))
return {'OK', f[4]}
