-- fail: a run went wrong. Another try after a delay while the error budget lasts, else the dead letters.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, known n, byte offset, text, length, retryable (1|0), delay ms,
--   error (JSON for the owner), detail (for operators), group (fingerprint), keep ms, idempotency keep ms,
--   number of events, then name, data, aux.
-- Replies: {OK, state} | {SAME, state} | {LOST, state} | {GAP, bytes} | {BEHIND, n}.
-- flags: allow-oom
-- include: base queue held finish
local t = load(ARGV[2])
local at = tonumber(ARGV[6])
local no = no_end(t, at)
if no then
  return no
end
apply(t, at, ARGV[7], ARGV[8], 16)
local errors = tonumber(t.errors) + 1
redis.call('HSET', KEYS[1], 'errors', int(errors), 'error', ARGV[11], 'last_error', ARGV[11], 'detail', ARGV[12], 'left', ARGV[4],
  'bytes', t.bytes, 'length', t.length)
if ARGV[9] == '1' and errors < tonumber(t.max_attempts) then
  if t.wish == 'pause' then
    park(t, 'fail', t.worker, 'requested')
  else
    requeue(t, 'fail', t.worker, NOW + tonumber(ARGV[10]))
  end
  return {'OK', t.state}
end
leave(t)
move(t, 'failed', 'fail', t.worker)
emit(t, 'failed', '{"state":"failed","error":' .. ARGV[11] .. '}')
save(t, 'state', 'failed', 'reason', '', 'lease', '', 'worker', '', 'wish', '', 'recovery_id', '', 'retry_at', '',
  'finished', int(NOW), 'group', ARGV[13], 'expires', int(NOW + tonumber(ARGV[14])))
redis.call('ZADD', P .. 'dead', int(NOW + tonumber(ARGV[14])), t.id)
redis.call('ZADD', key('group', t.owner .. ':' .. ARGV[13]), int(NOW), t.id)
redis.call('ZADD', key('groups', t.owner), int(NOW), ARGV[13])
hour(t, 'failed')
idem_expire(t, ARGV[15])
call_back(t)
publish(t)
return {'OK', 'failed'}
