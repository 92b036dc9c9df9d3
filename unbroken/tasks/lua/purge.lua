-- purge: every trace of a terminal task goes.
-- KEYS: task record. ARGV: prefix, id, owner, actor, name of this call (a hash), ms that it is remembered.
-- Replies: {OK, objects...}, also when the same call comes again | {REFUSED, state} | {NONE}.
-- Nothing of the task is left to recognise a repeat by, so the call's name is kept for a while, and it names no task.
-- flags: allow-oom
-- include: base queue purge
local told = redis.call('GET', key('gone', ARGV[5]))
if told then
  local answer = {'OK'}
  for where in string.gmatch(told, '%S+') do
    answer[#answer + 1] = where
  end
  return answer
end
local t = load(ARGV[2])
if not t or t.owner ~= ARGV[3] then
  return {'NONE'}
end
if t.state ~= 'completed' and t.state ~= 'failed' and t.state ~= 'cancelled' then
  return {'REFUSED', t.state}
end
local found = purge(t, ARGV[4], 'purge')
redis.call('SET', key('gone', ARGV[5]), table.concat(found, ' '), 'PX', ARGV[6])
return {'OK', unpack(found)}
