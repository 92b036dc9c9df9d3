-- Remove what a task has left. Objects outside Redis are named in the answer, for the caller to delete.

local function objects(t)
  local found = {}
  local saved = redis.pcall('HMGET', key('ckpt', t.id), 'a.where', 'b.where')
  for _, where in ipairs(saved.err and {} or saved) do
    if where and where ~= 'inline' then
      found[#found + 1] = where
    end
  end
  return found
end

-- The bulky part: text, events, items, input, checkpoints. The record stays.
local function shed(t)
  local found = objects(t)
  redis.call('UNLINK', key('in', t.id), key('ev', t.id), key('text', t.id), key('marks', t.id), key('items', t.id),
    key('ckpt', t.id), key('hist', t.id))
  return found
end

-- An idempotency key may answer with another task by now.
local function forget_key(id, idem)
  if idem ~= '' and redis.call('HGET', key('idem', idem), 'task') == id then
    redis.call('UNLINK', key('idem', idem))
  end
end

local function purge(t, actor, op)
  local found = shed(t)
  leave(t)
  redis.call('ZREM', P .. 'hooks', t.id .. ':' .. (t.generation or '1'))
  forget_key(t.id, t.idem or '')
  redis.call('ZREM', key('list', 'all:' .. t.owner), t.id)
  redis.call('ZREM', key('list', t.state .. ':' .. t.owner), t.id)
  redis.call('UNLINK', key('task', t.id))
  if redis.call('EXISTS', key('list', 'all:' .. t.owner)) == 0 then
    redis.call('SREM', P .. 'owners', t.owner)
  end
  redis.call('XADD', P .. 'audit', 'MAXLEN', '~', AUDIT_MAX, '*', 'task', t.id,
    'owner', t.owner, 'actor', actor, 'op', op, 'from', t.state, 'to', '', 'reason', '', 'at', int(NOW))
  return found
end

-- A record that cannot be read: what state it is in is not known, so it goes from everywhere.
local function forget(id)
  local known = redis.pcall('HMGET', key('task', id), 'owner', 'idem', 'generation')
  local owner, idem, generation = known[1], known[2] or '', known[3] or '1' -- all nil where it is no hash
  local found = objects({id = id})
  redis.call('UNLINK', key('task', id), key('in', id), key('ev', id), key('text', id), key('marks', id), key('items', id),
    key('ckpt', id), key('hist', id))
  for _, index in ipairs({'ready', 'delayed', 'leases', 'paused', 'dead', 'done'}) do
    redis.call('ZREM', P .. index, id)
  end
  redis.call('ZREM', P .. 'hooks', id .. ':' .. generation)
  forget_key(id, idem)
  for _, reason in ipairs({'worker_lost', 'timeout', 'requested', 'checkpoint_failed'}) do
    redis.call('ZREM', key('paused', reason), id)
  end
  for _, name in ipairs(owner and {owner} or redis.call('SMEMBERS', P .. 'owners')) do
    leave_ready(id, name)
    leave_leases(id, name)
    for _, state in ipairs({'all', 'pending', 'processing', 'paused', 'recovering', 'completed', 'failed', 'cancelled'}) do
      redis.call('ZREM', key('list', state .. ':' .. name), id)
    end
  end
  return found
end
