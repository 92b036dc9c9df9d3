-- mend: does every index name the task where its state says, and only there? The record is the truth; an index that was
-- deleted or damaged is made again from it.
-- KEYS: task record. ARGV: prefix, id, repair (1|0). A state that this version does not know is left as it is: its place
-- is known to the version that wrote it.
-- Replies: {} in order, or not a task | the differences, as words.
-- flags: allow-oom
-- include: base queue
local t = load(ARGV[2])
if not t then
  return {}
end
local STATES = {'pending', 'processing', 'paused', 'recovering', 'completed', 'failed', 'cancelled'}
if not string.find(' ' .. table.concat(STATES, ' ') .. ' ', ' ' .. t.state .. ' ', 1, true) then
  return {'is in no state that this version knows'}
end
local repair, found = ARGV[3] == '1', {}

local function in_zset(name, score, want, label)
  local has = redis.call('ZSCORE', name, t.id)
  if want and not has then
    found[#found + 1] = 'missing in ' .. label
    if repair then
      redis.call('ZADD', name, score, t.id)
    end
  elseif has and not want then
    found[#found + 1] = 'left over in ' .. label
    if repair then
      redis.call('ZREM', name, t.id)
    end
  end
end

local waits = t.state == 'pending' or t.state == 'recovering'
local due = tonumber(t.retry_at ~= '' and t.retry_at or '0')
local delayed = waits and redis.call('ZSCORE', P .. 'delayed', t.id)
local ready = waits and not delayed and due <= NOW
if waits and not ready then
  in_zset(P .. 'delayed', int(due), true, 'delayed')
else
  in_zset(P .. 'delayed', '0', false, 'delayed')
end
in_zset(P .. 'ready', t.score, ready, 'ready')
in_zset(key('ready', t.owner), t.score, ready, 'ready of its owner')
if ready and not redis.call('ZSCORE', P .. 'turns', t.owner) then
  -- an owner at its limit has no turn, and gets it back when one of its leases ends; one turn too many does no harm
  if redis.call('EXISTS', key('leases', t.owner)) == 0 then
    found[#found + 1] = 'its owner has no turn'
  end
  if repair then
    redis.call('ZADD', P .. 'turns', NOW_US, t.owner)
  end
end
in_zset(P .. 'leases', t.lease_until or int(NOW), t.state == 'processing', 'leases')
in_zset(key('leases', t.owner), int(NOW), t.state == 'processing', 'leases of its owner')
in_zset(P .. 'paused', t.updated, t.state == 'paused', 'paused')
for _, reason in ipairs({'worker_lost', 'timeout', 'requested', 'checkpoint_failed'}) do
  in_zset(key('paused', reason), t.updated, t.state == 'paused' and t.reason == reason, 'paused by reason')
end
in_zset(P .. 'dead', t.expires and t.expires ~= '' and t.expires or int(NOW), t.state == 'failed', 'dead')
local done = t.state == 'completed' or t.state == 'cancelled'
in_zset(P .. 'done', t.expires and t.expires ~= '' and t.expires or int(NOW), done, 'done')
for _, state in ipairs(STATES) do
  in_zset(key('list', state .. ':' .. t.owner), t.created_us, state == t.state, 'list ' .. state)
end
in_zset(key('list', 'all:' .. t.owner), t.created_us, true, 'list')
if redis.call('SISMEMBER', P .. 'owners', t.owner) == 0 then
  found[#found + 1] = 'missing in owners'
  if repair then
    redis.call('SADD', P .. 'owners', t.owner)
  end
end
if t.state == 'failed' and t.group and t.group ~= '' then
  in_zset(key('group', t.owner .. ':' .. t.group), t.finished, true, 'its group')
  if not redis.call('ZSCORE', key('groups', t.owner), t.group) then
    found[#found + 1] = 'its group is not listed'
    if repair then
      redis.call('ZADD', key('groups', t.owner), t.finished, t.group)
    end
  end
end
return found
