-- cancel: any live task -> cancelled, now. A running one loses its lease, so nothing its worker does counts (G12).
-- KEYS: task record. ARGV: prefix, id, owner, actor, keep ms, idempotency keep ms.
-- Replies: {OK} | {SAME} | {REFUSED, state} | {NONE}.
-- flags: allow-oom
-- include: base queue finish
local t = load(ARGV[2])
if not t or t.owner ~= ARGV[3] then
  return {'NONE'}
end
if t.state == 'cancelled' then
  return {'SAME'}
end
if t.state == 'completed' or t.state == 'failed' then
  return {'REFUSED', t.state}
end
leave(t)
move(t, 'cancelled', 'cancel', ARGV[4])
emit(t, 'cancelled', '{"state":"cancelled"}')
save(t, 'state', 'cancelled', 'reason', '', 'lease', '', 'worker', '', 'wish', '', 'recovery_id', '', 'retry_at', '',
  'finished', int(NOW), 'expires', int(NOW + tonumber(ARGV[5])))
redis.call('ZADD', P .. 'done', int(NOW + tonumber(ARGV[5])), t.id)
idem_expire(t, ARGV[6])
publish(t)
tell('cancel ' .. t.id)
return {'OK'}
