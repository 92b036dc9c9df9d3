-- release: give a running task back in order: to the queue at its old place (SIGTERM; costs no budget), or to paused.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, known n, byte offset, text, length, to (recovering|paused), reason,
--   number of events, then name, data, aux.
-- Replies: {OK, state} | {SAME, state} | {LOST, state} | {GAP, bytes} | {BEHIND, n}.
-- flags: allow-oom
-- include: base queue held
local t = load(ARGV[2])
local at = tonumber(ARGV[6])
local no = no_end(t, at)
if no then
  return no
end
apply(t, at, ARGV[7], ARGV[8], 11)
redis.call('HSET', KEYS[1], 'left', ARGV[4], 'bytes', t.bytes, 'length', t.length)
if ARGV[9] == 'paused' then
  if ARGV[10] == 'timeout' then
    redis.call('HINCRBY', KEYS[1], 'timeouts', 1)
  end
  park(t, 'park', t.worker, ARGV[10])
elseif t.wish == 'pause' then
  park(t, 'park', t.worker, 'requested')
else
  requeue(t, 'release', t.worker, NOW, 'interruptions', int(tonumber(t.interruptions) + 1))
end
return {'OK', t.state}
