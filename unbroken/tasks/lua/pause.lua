-- pause: a waiting task at once; a running one is asked to save a checkpoint and stop (its worker parks it; should the
-- worker die first, the reaper does).
-- KEYS: task record. ARGV: prefix, id, owner, actor.
-- Replies: {OK, state} | {SAME, state} | {REFUSED, state} | {NONE}.
-- flags: allow-oom
-- include: base queue
local t = load(ARGV[2])
if not t or t.owner ~= ARGV[3] then
  return {'NONE'}
end
if t.state == 'paused' or (t.state == 'processing' and t.wish == 'pause') then
  return {'SAME', t.state}
end
if t.state == 'pending' or t.state == 'recovering' then
  park(t, 'pause', ARGV[4], 'requested')
  return {'OK', t.state}
end
if t.state ~= 'processing' then
  return {'REFUSED', t.state}
end
redis.call('HSET', KEYS[1], 'wish', 'pause')
tell('pause ' .. t.id)
return {'OK', t.state}
