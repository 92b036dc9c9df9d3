-- Where a live task stands: exactly one of ready, delayed, leases, paused.
--
-- ready              zset  id -> enqueue time less the head start of its priority, microseconds
-- ready:<owner>      zset  the same for one owner
-- turns              zset  owner -> microseconds of its last turn; owners take turns, so nobody's crowd delays another
-- delayed            zset  id -> due ms
-- leases             zset  id -> lease end ms: the only truth about who is running
-- leases:<owner>     zset  the same for one owner: limits are counted from leases, never apart
-- paused, dead, done zset  id -> ms
-- paused:<reason>    zset  the same for one reason, to be counted

-- The end of the line of owners: behind everybody who stands there, also when the clock was set back.
local function turn()
  local last = redis.call('ZRANGE', P .. 'turns', -1, -1, 'WITHSCORES')[2]
  return int(math.max(NOW_US, tonumber(last or 0) + 1))
end

local function to_ready(t)
  redis.call('ZADD', P .. 'ready', t.score, t.id)
  redis.call('ZADD', key('ready', t.owner), t.score, t.id)
  redis.call('ZADD', P .. 'turns', 'NX', turn(), t.owner)
  tell('wake')
end

local function enqueue(t, due)
  if due > NOW then
    redis.call('ZADD', P .. 'delayed', int(due), t.id)
  else
    to_ready(t)
  end
end

local function leave_ready(id, owner)
  redis.call('ZREM', P .. 'ready', id)
  redis.call('ZREM', P .. 'delayed', id)
  if owner then
    redis.call('ZREM', key('ready', owner), id)
    if redis.call('EXISTS', key('ready', owner)) == 0 then
      redis.call('ZREM', P .. 'turns', owner)
    end
  end
end

-- An owner at its limit left the turns (claim.lua); a lease that ends brings it back.
local function leave_leases(id, owner)
  redis.call('ZREM', P .. 'leases', id)
  redis.call('ZREM', key('leases', owner), id)
  if redis.call('EXISTS', key('ready', owner)) == 1 then
    redis.call('ZADD', P .. 'turns', 'NX', turn(), owner)
  end
end

local function leave_dead(t)
  redis.call('ZREM', P .. 'dead', t.id)
  if t.group and t.group ~= '' then
    local group = key('group', t.owner .. ':' .. t.group)
    redis.call('ZREM', group, t.id)
    if redis.call('EXISTS', group) == 0 then
      redis.call('ZREM', key('groups', t.owner), t.group)
    end
  end
end

-- Take the task out of the index in which its state puts it.
local function leave(t)
  if t.state == 'processing' then
    leave_leases(t.id, t.owner)
  elseif t.state == 'paused' then
    redis.call('ZREM', P .. 'paused', t.id)
    redis.call('ZREM', key('paused', t.reason), t.id)
  elseif t.state == 'failed' then
    leave_dead(t)
  elseif t.state == 'completed' or t.state == 'cancelled' then
    redis.call('ZREM', P .. 'done', t.id)
  else
    leave_ready(t.id, t.owner)
  end
end

-- processing, pending or recovering -> paused.
local function park(t, op, actor, reason)
  leave(t)
  move(t, 'paused', op, actor, reason)
  redis.call('ZADD', P .. 'paused', int(NOW), t.id)
  redis.call('ZADD', key('paused', reason), int(NOW), t.id)
  status(t)
  save(t, 'state', t.state, 'reason', t.reason, 'lease', '', 'worker', '', 'wish', '', 'recovery_id', '', 'retry_at', '')
  publish(t)
end

local WHY = {lost = 'worker_lost', release = 'shutdown', fail = 'error'}

-- processing -> recovering: it continues as soon as a worker is free, or at `due`.
local function requeue(t, op, actor, due, ...)
  leave(t)
  move(t, 'recovering', op, actor, '')
  local retry_at = due > NOW and due or nil
  status(t, retry_at, WHY[op])
  save(t, 'state', t.state, 'reason', '', 'lease', '', 'worker', '', 'wish', '',
    'retry_at', retry_at and int(retry_at) or '', ...)
  enqueue(t, due)
  publish(t)
end

-- A lease ran out: its worker is gone. The crash budget counts losses in a row without new progress in between, so a
-- poison task ends paused and a long task that gets on does not.
local function lost(t)
  local crashes = t.fresh == '1' and 1 or tonumber(t.crashes) + 1
  redis.call('HSET', key('task', t.id), 'crashes', int(crashes), 'losses', int(tonumber(t.losses) + 1), 'fresh', '0')
  if t.wish == 'pause' then
    park(t, 'lost', 'reaper', 'requested')
  elseif t.recovery == 'manual' or crashes >= tonumber(t.max_crashes) then
    park(t, 'lost', 'reaper', 'worker_lost')
  else
    requeue(t, 'lost', 'reaper', NOW)
  end
end

-- Bounded steps of the reaper; claims take them along.
local function promote(limit)
  local due = redis.call('ZRANGEBYSCORE', P .. 'delayed', '-inf', int(NOW), 'LIMIT', 0, limit)
  for _, id in ipairs(due) do
    redis.call('ZREM', P .. 'delayed', id)
    local t = load(id)
    if t and (t.state == 'pending' or t.state == 'recovering') then
      to_ready(t)
    end
  end
  return #due
end

-- The clock was set back: by it, leases and the delays of retries would end too late by as much. A lease is never longer
-- than itself, and what was written at a time that has yet to come says how long the delay was to be. A time that the
-- owner asked for (pending) stays that time. Once for each step (from `seen` to now), so the bound may be wide.
local function set_back(limit, lease_ms, seen)
  local till = int(NOW + lease_ms)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'leases', '(' .. till, '+inf', 'LIMIT', 0, limit)) do
    redis.call('ZADD', P .. 'leases', till, id)
    if load(id) then
      redis.call('HSET', key('task', id), 'lease_until', till)
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'delayed', '(' .. int(NOW), '+inf', 'LIMIT', 0, limit)) do
    local t = load(id)
    local due, written = t and tonumber(t.retry_at), t and tonumber(t.updated)
    if due and t.state == 'recovering' and written and written > NOW then
      due = int(NOW + math.max(0, due - written))
      redis.call('ZADD', P .. 'delayed', due, id)
      save(t, 'retry_at', due)
    end
  end
  local hooks = redis.call('ZRANGEBYSCORE', P .. 'hooks', '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #hooks, 2 do
    redis.call('ZADD', P .. 'hooks', int(math.max(NOW, tonumber(hooks[i + 1]) - (seen - NOW))), hooks[i])
  end
end

-- After an outage every lease is in the past at once. If nobody looked for longer than half a lease, the living get
-- one whole lease to renew before anybody is declared lost (G15). Returns how many were lost.
local function reap(limit, lease_ms)
  local seen = tonumber(redis.call('GET', P .. 'seen') or '0')
  local grace = tonumber(redis.call('GET', P .. 'grace') or '0')
  if math.abs(NOW - seen) > lease_ms / 2 then
    grace = NOW + lease_ms
    redis.call('SET', P .. 'grace', int(grace), 'PX', int(lease_ms * 2))
    if NOW < seen then
      set_back(5000, lease_ms, seen)
    end
  end
  if NOW ~= seen then
    redis.call('SET', P .. 'seen', int(NOW), 'PX', 86400000)
  end
  if NOW < grace then
    return 0
  end
  local expired = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', '(' .. int(NOW), 'LIMIT', 0, limit)
  for _, id in ipairs(expired) do
    local t = load(id)
    if t and t.state == 'processing' then
      lost(t)
    else
      redis.call('ZREM', P .. 'leases', id) -- a broken record must not stop the others
      redis.call('ZADD', P .. 'broken', int(NOW), id)
    end
  end
  return #expired
end
