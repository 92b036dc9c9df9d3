-- heartbeat: the holder is alive although its model is silent.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, known n, lease ms.
-- Replies: {OK, wish} | {LOST, state}. A lease that has run out but was not reaped may still be renewed by its holder.
-- flags: allow-oom
-- include: base held
local t = glance(KEYS[1], ARGV[2], 'wish')
if not held(t) then
  return not_held(t)
end
redis.call('HSET', KEYS[1], 'lease_until', renew(t, tonumber(ARGV[6])))
return {'OK', t.wish}
