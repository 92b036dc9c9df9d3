-- create: one accepted task, or the answer of the first time.
-- KEYS: task record. ARGV: prefix, id, owner, actor, idem ('' or "<owner>:<hash>"), digest, due ms (0 = now),
--   head start ms (may be negative), input (msgpack), cache ('' or "<owner>:<hash of kind and input>"), cache ms,
--   idempotency keep ms, then field, value pairs of the record.
-- Replies: {OK, created ms} | {SAME, id, created ms} same key and body | {CONFLICT} same key, other body
--   | {CACHED, id, 1 | 0} a finished task of this owner with the same kind and input, not older than asked for; 1: that
--   was the answer to this key before.
-- Atomic, since a task that was answered must be in an index, and one key must make one task (G5, G11, G14).
-- include: base queue
local id, owner, actor, idem, digest = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local due, head, input, cache = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10]

if idem ~= '' then
  local known = redis.call('HMGET', key('idem', idem), 'task', 'digest', 'created', 'cached')
  -- what its owner has deleted cannot be answered with: such a key is as good as new
  if known[1] and known[1] ~= id and redis.call('EXISTS', key('task', known[1])) == 1 then
    if known[2] ~= digest then
      return {'CONFLICT'}
    end
    if known[4] then
      return {'CACHED', known[1], known[4] == id and 0 or 1}
    end
    return {'SAME', known[1], known[3]}
  end
end
local mine = redis.call('HMGET', KEYS[1], 'owner', 'created')
if mine[1] then -- the same call again, its first answer was lost
  return mine[1] == owner and {'OK', mine[2]} or {'CONFLICT'}
end

if cache ~= '' then -- never an unfinished, failed or foreign one: the pointer is per owner, the record is looked at
  local hit = redis.call('GET', key('cache', cache))
  local f = hit and redis.call('HMGET', key('task', hit), 'state', 'finished', 'shed', 'unit', 'warning')
  local flawed = f and f[4] == 'items' and (f[5] or '') ~= '' -- some of its items failed
  if f and f[1] == 'completed' and not f[3] and not flawed and NOW - tonumber(f[2]) <= tonumber(ARGV[11]) then
    if idem ~= '' then
      redis.call('HSET', key('idem', idem), 'task', hit, 'digest', digest, 'created', int(NOW), 'cached', id)
      redis.call('PEXPIRE', key('idem', idem), ARGV[12])
    end
    return {'CACHED', hit, 0}
  end
end

local enqueued = math.max(NOW_US, due * 1000) -- microseconds, so that tasks of one millisecond keep their order
local t = {id = id, owner = owner, state = 'pending', reason = '', epoch = int(NOW), n = 0, first = 1, frames = {},
  attempts = '0', created_us = int(NOW_US), score = int(enqueued - head * 1000)}
-- What changes with every append comes first: a small hash is searched from its beginning.
redis.call('HSET', KEYS[1], 'state', 'pending', 'epoch', t.epoch, 'lease', '', 'n', 0, 'updated', int(NOW), 'batch', 0,
  'bytes', 0, 'length', 0, 'progress', 0, 'done', 0, 'fresh', 0, 'far_length', 0, 'far_done', 0, 'wish', '',
  'lease_until', 0, 'owner', owner, 'reason', '', 'worker', '', 'left', '', 'attempts', 0, 'errors', 0, 'crashes', 0,
  'losses', 0, 'interruptions', 0, 'generation', 1, 'created', int(NOW), 'created_us', t.created_us, 'score', t.score,
  'retry_at', due > NOW and int(due) or '', 'idem', idem, 'digest', digest, 'cache', cache, unpack(ARGV, 13))
redis.call('SET', key('in', id), input)
redis.call('ZADD', key('list', 'all:' .. owner), t.created_us, id)
redis.call('SADD', P .. 'owners', owner)
move(t, 'pending', 'create', actor)
status(t, due > NOW and due or nil)
save(t)
enqueue(t, due)
if idem ~= '' then
  redis.call('DEL', key('idem', idem))
  redis.call('HSET', key('idem', idem), 'task', id, 'digest', digest, 'created', int(NOW))
end
publish(t)
return {'OK', int(NOW)}
