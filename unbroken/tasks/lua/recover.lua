-- recover: paused -> recovering. Asked again while that recovery waits or runs: the same answer (G11).
-- KEYS: task record. ARGV: prefix, id, owner, actor, new recovery id.
-- Replies: {OK, recovery id} | {SAME, recovery id} | {REFUSED, state, ms at which it starts by itself or ''} | {NONE}.
-- flags: allow-oom
-- include: base queue
local t = load(ARGV[2])
if not t or t.owner ~= ARGV[3] then
  return {'NONE'}
end
if t.state ~= 'paused' then
  if (t.state == 'recovering' or t.state == 'processing') and (t.recovery_id or '') ~= '' then
    return {t.recovery_id == ARGV[5] and 'OK' or 'SAME', t.recovery_id} -- its own: this very call, sent again
  end
  local due = tonumber(t.retry_at) -- nil for ''
  return {'REFUSED', t.state, due and due > NOW and t.retry_at or ''}
end
requeue(t, 'recover', ARGV[4], NOW, 'recovery_id', ARGV[5], 'crashes', 0)
return {'OK', ARGV[5]}
