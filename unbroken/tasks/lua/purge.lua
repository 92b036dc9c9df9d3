-- purge: every trace of a terminal task goes.
-- KEYS: task record. ARGV: prefix, id, owner, actor.
-- Replies: {OK, objects...} | {REFUSED, state} | {NONE}.
-- flags: allow-oom
-- include: base queue purge
local t = load(ARGV[2])
if not t or t.owner ~= ARGV[3] then
  return {'NONE'}
end
if t.state ~= 'completed' and t.state ~= 'failed' and t.state ~= 'cancelled' then
  return {'REFUSED', t.state}
end
local found = purge(t, ARGV[4], 'purge')
return {'OK', unpack(found)}
