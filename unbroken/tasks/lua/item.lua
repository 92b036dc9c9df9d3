-- item: the result of one item of a batch, set once under the fence (G13); counts are derived, never kept apart.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, known n, lease ms, index, data (JSON of the item event), total.
-- Replies: {OK, done, n, wish} | {SAME, done, n, wish} it was set before and stays as it was | {LOST, state}
--   | {BEHIND, n} Redis knows less than this lease was told.
-- include: base held
local t = load(ARGV[2])
local no = refusal(t)
if no then
  return no
end
local items = key('items', t.id)
if redis.call('HSETNX', items, ARGV[7], ARGV[8]) == 0 then
  return {'SAME', redis.call('HLEN', items), t.n, t.wish}
end
local done, total = redis.call('HLEN', items), tonumber(ARGV[9])
local till = renew(t, tonumber(ARGV[6]))
local progress = string.format('%.4g', done / total)
emit(t, 'item', ARGV[8])
emit(t, 'progress', string.format('{"progress":%s,"done":%d,"total":%d,"unit":"items"}', progress, done, total))
save(t, 'done', done, 'total', total, 'progress', progress, 'lease_until', till, unpack(advance(t, t.length, done)))
publish(t)
return {'OK', done, int(t.n), t.wish}
