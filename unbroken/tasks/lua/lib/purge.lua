-- Remove what a task has left. Objects outside Redis are named in the answer, for the caller to delete.

local function objects(t)
  local found = {}
  for _, where in ipairs(redis.call('HMGET', key('ckpt', t.id), 'a.where', 'b.where')) do
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

local function purge(t, actor, op)
  local found = shed(t)
  leave(t)
  if (t.idem or '') ~= '' and redis.call('HGET', key('idem', t.idem), 'task') == t.id then
    redis.call('UNLINK', key('idem', t.idem))
  end
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
