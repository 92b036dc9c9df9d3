-- sweep: the end of retention. First the bulky part of a finished task goes, then its record; a dead letter goes whole.
-- What cannot be read is kept for as long as a record, since somebody may want to look at it.
-- KEYS: done. ARGV: prefix, limit, ms that a record outlives its result, archive (1: a completed task must be archived
--   before its result goes), ms that a broken record is kept.
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
      redis.call('ZADD', P .. 'broken', int(NOW), id)
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
for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'broken', '-inf', int(NOW - tonumber(ARGV[5])), 'LIMIT', 0, limit)) do
  redis.call('ZREM', P .. 'broken', id)
  if not load(id) then -- one that can be read is in its own index, or the recount brings it back there
    swept = swept + 1
    for _, where in ipairs(forget(id)) do
      objects_left[#objects_left + 1] = where
    end
  end
end
return {swept, objects_left, archive}
