-- snapshot: everything a late viewer needs to be brought up to date from the text instead of from every event.
-- KEYS: task record. ARGV: prefix, id.
-- Replies: {} | {state, created, epoch, n, progress, n of the last event that took text back, number of items, text, marks,
--   last event [id, pairs], newest checkpoint [event, offset, progress, at], newest two changes of state, newest progress
--   event [] or [id, data, length of the text at it (code points; -1: not found out)]}.
-- Read-only; one script, since text, marks and the last event must be of one moment.
-- flags: no-writes
-- include: base
local f = redis.call('HMGET', KEYS[1], 'state', 'created', 'epoch', 'n', 'progress', 'rewound', 'length', 'counted')
if not f[1] then
  return {}
end
local id = ARGV[2]
local log, newest = key('ev', id), f[3] .. '-' .. f[4]

-- Where the text was at the newest progress event: where the next chunk goes on.
local function counts()
  local rows = f[8] and redis.call('XRANGE', log, f[8], '+', 'COUNT', 17) or {}
  if not rows[1] or rows[1][1] ~= f[8] then
    return {}
  end
  local length = #rows < 17 and f[7] or '-1'
  for i = 2, #rows do
    if rows[i][2][2] == 'chunk' then
      length = string.match(rows[i][2][4], '^{"offset":(%d+),') or '-1'
      break
    end
  end
  return {f[8], rows[1][2][4], length}
end

return {f[1], f[2], f[3], f[4], f[5], f[6] or '0', redis.call('HLEN', key('items', id)),
  redis.call('GET', key('text', id)) or '', redis.call('LRANGE', key('marks', id), 0, -1),
  redis.call('XRANGE', log, newest, newest),
  redis.call('HMGET', key('ckpt', id), 'a.event', 'a.offset', 'a.progress', 'a.at'),
  redis.call('LRANGE', key('hist', id), -2, -1), counts()}
