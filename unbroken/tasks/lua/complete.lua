-- complete: the last text, the end and the result, in one write (G3).
-- KEYS: task record. ARGV: prefix, id, epoch, lease, known n, byte offset, text, length (code points), sha256 of the result,
--   bytes of all text, done, total, keep ms, idempotency keep ms, checkpoint keep ms, result length (code points),
--   number of events, then name, data, aux.
-- Replies: {OK} | {SAME, state} this lease ended it before | {LOST, state} | {GAP, bytes} | {BEHIND, n} | {MISMATCH, bytes} what is
--   stored would not be what the digest says: our mistake, nothing is written.
-- flags: allow-oom
-- include: base queue held finish
local t = load(ARGV[2])
local at, text = tonumber(ARGV[6]), ARGV[7]
local no = no_end(t, at)
if no then
  return no
end
if at + #text ~= tonumber(ARGV[10]) or redis.call('STRLEN', key('text', t.id)) ~= tonumber(t.bytes) then
  return {'MISMATCH', t.bytes}
end
apply(t, at, text, ARGV[8], 17)
leave(t)
move(t, 'completed', 'complete', t.worker)
emit(t, 'done', '{"state":"completed","length":' .. ARGV[16] .. ',"sha256":"' .. ARGV[9] .. '","finished_at":"' .. iso(NOW)
  .. '","result":"/api/tasks/' .. t.id .. '/result"}')
save(t, 'state', 'completed', 'reason', '', 'lease', '', 'worker', '', 'left', ARGV[4], 'wish', '', 'recovery_id', '',
  'bytes', t.bytes, 'length', t.length, 'sha256', ARGV[9], 'progress', 1, 'done', ARGV[11], 'total', ARGV[12],
  'finished', int(NOW), 'error', '', 'retry_at', '', 'expires', int(NOW + tonumber(ARGV[13])))
redis.call('ZADD', P .. 'done', int(NOW + tonumber(ARGV[13])), t.id)
redis.call('PEXPIRE', key('ckpt', t.id), ARGV[15])
hour(t, 'completed')
idem_expire(t, ARGV[14])
call_back(t)
-- items that failed are nobody's next answer
if t.cache and t.cache ~= '' and not (t.unit == 'items' and (t.warning or '') ~= '') then
  redis.call('SET', key('cache', t.cache), t.id, 'PX', ARGV[13])
end
publish(t)
return {'OK'}
