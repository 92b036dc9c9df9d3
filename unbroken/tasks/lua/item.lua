-- item: the result of one item of a batch, set once under the fence (G13); counts are derived, never kept apart.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, lease ms, index, data (JSON of the item event), total.
-- Replies: {OK, done, wish} | {SAME, done, wish} it was set before and stays as it was | {LOST, state}.
-- include: base held
local t = load(ARGV[2])
if not held(t) then
  return not_held(t)
end
local items = key('items', t.id)
if redis.call('HSETNX', items, ARGV[6], ARGV[7]) == 0 then
  return {'SAME', redis.call('HLEN', items), t.wish}
end
local done, total = redis.call('HLEN', items), tonumber(ARGV[8])
local till = renew(t, tonumber(ARGV[5]))
local progress = string.format('%.4g', done / total)
emit(t, 'item', ARGV[7])
emit(t, 'progress', string.format('{"progress":%s,"done":%d,"total":%d,"unit":"items"}', progress, done, total))
save(t, 'done', done, 'total', total, 'progress', progress, 'lease_until', till, unpack(advance(t, t.length, done)))
publish(t)
return {'OK', done, t.wish}
