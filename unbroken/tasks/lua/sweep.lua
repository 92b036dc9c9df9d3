-- sweep: the end of retention. First the bulky part of a finished task goes, then its record; a dead letter goes whole.
-- KEYS: done. ARGV: prefix, limit, ms that a record outlives its result, archive (1: a completed task must be archived
--   before its result goes).
-- Replies: {swept, {objects...}, {ids to archive...}}.
-- flags: allow-oom
-- include: base queue purge
local limit, more = tonumber(ARGV[2]), tonumber(ARGV[3])
local swept, objects_left, archive = 0, {}, {}
for _, index in ipairs({'done', 'dead'}) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. index, '-inf', int(NOW), 'LIMIT', 0, limit)) do
    local t = load(id)
    local found = {}
    swept = swept + 1
    if not t then
      redis.call('ZREM', P .. index, id)
    elseif ARGV[4] == '1' and t.state == 'completed' and t.shed ~= '1' and t.archived ~= '1' then
      archive[#archive + 1] = id
      redis.call('ZADD', P .. 'done', int(NOW + 60000), id) -- comes back, whoever archives it or dies over it
    elseif index == 'done' and t.shed ~= '1' and more > 0 then
      found = shed(t)
      redis.call('HSET', key('task', id), 'shed', '1')
      redis.call('ZADD', P .. 'done', int(NOW + more), id)
    else
      found = purge(t, 'sweeper', 'sweep')
    end
    for _, where in ipairs(found) do
      objects_left[#objects_left + 1] = where
    end
  end
end
return {swept, objects_left, archive}
