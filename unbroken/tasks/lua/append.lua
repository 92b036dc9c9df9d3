-- append: text and events of a running task; renews the lease, so that progress and heartbeat cannot drift apart.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, batch number, lease ms, byte offset, text, length after
--   (code points), progress, done, total ('' = unknown), number of events, then name, data, aux for each.
-- Replies: {OK, n, wish} | {SAME, n, wish} this batch is written already | {LOST, state} | {GAP, bytes} the text would
--   leave a hole: our mistake, nothing is written.
-- Atomic: the text, its events and the counts are one fact.
-- include: base held
local f = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'lease', 'n', 'batch', 'bytes', 'far_length', 'far_done',
  'fresh', 'wish')
local t = {id = ARGV[2], state = f[1], epoch = f[2], lease = f[3], n = f[4], bytes = f[6], far_length = f[7],
  far_done = f[8], fresh = f[9], frames = {}}
local batch, at = tonumber(ARGV[5]), tonumber(ARGV[7])
if not f[1] then
  return {'LOST', 'gone'}
end
if not held(t) then
  return not_held(t)
end
t.first = tonumber(t.n) + 1
if batch <= tonumber(f[5]) then
  return {'SAME', t.n, f[10]}
end
if not fits(t, at) then
  return {'GAP', t.bytes}
end
local till = renew(t, tonumber(ARGV[6]))
apply(t, at, ARGV[8], ARGV[9], 13)
local far_length, far_done = advance(t, ARGV[9], ARGV[11])
save(t, 'batch', ARGV[5], 'bytes', t.bytes, 'length', t.length, 'progress', ARGV[10], 'done', ARGV[11],
  'total', ARGV[12], 'far_length', far_length, 'far_done', far_done, 'fresh', t.fresh, 'lease_until', till)
publish(t)
return {'OK', int(t.n), f[10]}
