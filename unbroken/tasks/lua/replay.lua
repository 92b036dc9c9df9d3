-- replay: failed -> recovering, from its checkpoint, with fresh budgets: a new generation, once (G11).
-- KEYS: task record. ARGV: prefix, id, owner, actor, name of this call (random).
-- Replies: {OK, generation}, also when the same call comes again | {REFUSED, state} | {NONE}.
-- include: base queue
local t = load(ARGV[2])
if not t or t.owner ~= ARGV[3] then
  return {'NONE'}
end
if t.replayed == ARGV[5] then
  return {'OK', t.generation}
end
if t.state ~= 'failed' then
  return {'REFUSED', t.state}
end
redis.call('ZREM', P .. 'hooks', t.id .. ':' .. t.generation) -- it has not failed any more
local generation = int(tonumber(t.generation) + 1)
if t.idem ~= '' then
  redis.call('PERSIST', key('idem', t.idem))
end
local past = int(tonumber(t.past_errors or 0) + tonumber(t.errors)) -- how often a backend has failed is no budget
requeue(t, 'replay', ARGV[4], NOW, 'errors', 0, 'past_errors', past, 'crashes', 0, 'generation', generation, 'replayed', ARGV[5],
  'error', '', 'group', '', 'finished', '', 'expires', '', 'callback_tries', 0,
  'callback_state', '', 'warning', '')
return {'OK', generation}
