-- claim: the one way to start work. Moves due tasks, reaps expired leases (both bounded), gives the best ready task.
-- KEYS: ready. ARGV: prefix, worker, token (random, becomes the lease id), lease ms, limit overall, limit per owner
--   (0 = none), slot: which of the worker's claims at once this is.
-- Replies: {TASK, id, record pairs, input, checkpoint pairs} | {NONE, ms until something is due, or -1} | {AGAIN}.
-- Atomic, since a task taken out of `ready` must be in `leases`. The same token again (a lost reply) gets the same
-- task again: no lease is left without a holder (G14).
-- include: base queue
local worker, token, lease_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
local limit, per_owner, claims = tonumber(ARGV[5]), tonumber(ARGV[6]), key('worker', worker .. ':' .. ARGV[7])

local function answer(id)
  return {'TASK', id, redis.call('HGETALL', key('task', id)), redis.call('GET', key('in', id)) or '',
    redis.call('HGETALL', key('ckpt', id))}
end

local last = redis.call('HMGET', claims, 'token', 'task')
if last[1] == token then
  if last[2] and redis.call('HGET', key('task', last[2]), 'lease') == token then
    return answer(last[2])
  end
  return {'AGAIN'}
end

promote(50)
reap(20, lease_ms)

if limit > 0 and redis.call('ZCARD', P .. 'leases') >= limit then
  return {'NONE', -1}
end
local t
for _ = 1, 64 do
  local owner = redis.call('ZRANGE', P .. 'turns', 0, 0)[1]
  if not owner then
    break
  end
  local id = redis.call('ZRANGE', key('ready', owner), 0, 0)[1]
  if not id or (per_owner > 0 and redis.call('ZCARD', key('leases', owner)) >= per_owner) then
    redis.call('ZREM', P .. 'turns', owner) -- comes back with its next task, or with its next lease that ends
  else
    t = load(id)
    leave_ready(id, owner)
    if t and (t.state == 'pending' or t.state == 'recovering') then
      redis.call('ZADD', P .. 'turns', 'XX', turn(), owner)
      break
    end
    redis.call('ZADD', P .. 'broken', int(NOW), id)
    t = nil
  end
end
if not t then
  if redis.call('EXISTS', P .. 'turns') == 1 then
    return {'AGAIN'}
  end
  local due = redis.call('ZRANGE', P .. 'delayed', 0, 0, 'WITHSCORES')[2]
  return {'NONE', due and math.max(0, tonumber(due) - NOW) or -1}
end

t.epoch = int(math.max(tonumber(t.epoch) + 1, NOW))
t.attempts = int(tonumber(t.attempts) + 1)
local till = int(NOW + lease_ms)
redis.call('ZADD', P .. 'leases', till, t.id)
redis.call('ZADD', key('leases', t.owner), int(NOW), t.id)
move(t, 'processing', 'claim', worker)
status(t)
save(t, 'state', 'processing', 'reason', '', 'epoch', t.epoch, 'lease', token, 'worker', worker, 'batch', 0, 'wish', '',
  'attempts', t.attempts, 'fresh', '0', 'lease_until', till, 'retry_at', '', 'claimed', int(NOW),
  'started', (t.started and t.started ~= '') and t.started or int(NOW))
redis.call('HSET', claims, 'token', token, 'task', t.id)
redis.call('PEXPIRE', claims, int(lease_ms * 4))
publish(t)
return answer(t.id)
