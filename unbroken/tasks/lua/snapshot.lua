-- snapshot: everything a late viewer needs to be brought up to date from the text instead of from every event.
-- KEYS: task record. ARGV: prefix, id.
-- Replies: {} | {state, created, epoch, n, length, bytes, attempts, reason, progress, text, marks, last event
--   [id, pairs], newest checkpoint [event, offset, bytes, progress, at], retry_at, updated, number of items,
--   n of the last event that took text back}.
-- Read-only; one script, since text, marks and the last event must be of one moment.
-- flags: no-writes
-- include: base
local f = redis.call('HMGET', KEYS[1], 'state', 'created', 'epoch', 'n', 'length', 'bytes', 'attempts', 'reason', 'progress',
  'retry_at', 'updated', 'rewound')
if not f[1] then
  return {}
end
local id = ARGV[2]
local newest = f[3] .. '-' .. f[4]
return {f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9], redis.call('GET', key('text', id)) or '',
  redis.call('LRANGE', key('marks', id), 0, -1), redis.call('XRANGE', key('ev', id), newest, newest),
  redis.call('HMGET', key('ckpt', id), 'a.event', 'a.offset', 'a.bytes', 'a.progress', 'a.at'), f[10] or '',
  f[11] or '0', redis.call('HLEN', key('items', id)), f[12] or '0'}
