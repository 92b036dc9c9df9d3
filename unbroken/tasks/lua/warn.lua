-- warn: a visible word on a running task (a checkpoint that had to be passed over). Changes nothing else.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, known n, text ('' takes it away), how many checkpoints could not be saved
--   under this lease so far ('' says nothing about it).
-- Replies: {OK} | {LOST, state}.
-- The number of failures is the lease's own total, and what it was the last time is kept: sent twice, it counts once.
-- Fenced as every write of a worker: a task that was deleted meanwhile must not come back as a key with one field.
-- flags: allow-oom
-- include: base held
local t = glance(KEYS[1], ARGV[2], 'unsaved')
if not held(t) then
  return not_held(t)
end
redis.call('HSET', KEYS[1], 'warning', ARGV[6])
if ARGV[7] ~= '' then
  local told, total = string.match(t.unsaved, '^' .. t.lease .. ' (%d+)$'), tonumber(ARGV[7])
  if total > tonumber(told or 0) then
    redis.call('HSET', KEYS[1], 'unsaved', t.lease .. ' ' .. int(total))
    redis.call('HINCRBY', P .. 'counters', 'checkpoint_failures', total - tonumber(told or 0))
  end
end
return {'OK'}
