-- checkpoint: save a point to continue from; the newest two are kept.
-- KEYS: task record. ARGV: prefix, id, epoch, lease, known n, lease ms, seq (1, 2, ... within the lease), offset (code points),
--   progress, schema, codec, raw length, size, sha256, where ('inline' or an object's key), data ('' for an object).
-- Replies: {OK, event id, key of an object that nobody refers to any more or ''} | {SAME, ...} | {LOST, state}
--   | {BEHIND, n} as everywhere | {SHORT, length} the text up to `offset` is not in the log: our mistake.
-- Atomic, since a reader must see the old one or the new one; the object is written before, the pointer moves here,
-- under the fence.
-- include: base held
local t = load(ARGV[2])
local no = refusal(t)
if no then
  return no
end
local where = key('ckpt', t.id)
local old = redis.call('HMGET', where, 'a.epoch', 'a.seq', 'a.event', 'b.where')
if old[1] == ARGV[3] and tonumber(old[2]) >= tonumber(ARGV[7]) then
  return {'SAME', old[3], ''}
end
if t.length ~= ARGV[8] then
  return {'SHORT', t.length}
end
local orphan = ''
if old[1] then
  if old[4] and old[4] ~= 'inline' then
    orphan = old[4]
  end
  local all = redis.call('HGETALL', where)
  local previous = {}
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'a.' then
      previous[#previous + 1] = 'b.' .. string.sub(all[i], 3)
      previous[#previous + 1] = all[i + 1]
    end
  end
  redis.call('HSET', where, unpack(previous))
end
local till = renew(t, tonumber(ARGV[6]))
emit(t, 'checkpoint', '{"offset":' .. ARGV[8] .. ',"progress":' .. ARGV[9] .. ',"saved_at":"' .. iso(NOW) .. '"}')
local event = t.epoch .. '-' .. int(t.n)
redis.call('HSET', where, 'a.v', 1, 'a.epoch', ARGV[3], 'a.seq', ARGV[7], 'a.event', event, 'a.offset', ARGV[8],
  'a.bytes', t.bytes, 'a.progress', ARGV[9], 'a.schema', ARGV[10], 'a.codec', ARGV[11], 'a.raw', ARGV[12],
  'a.size', ARGV[13], 'a.sha256', ARGV[14], 'a.where', ARGV[15], 'a.data', ARGV[16], 'a.at', int(NOW))
save(t, 'lease_until', till)
publish(t)
return {'OK', event, orphan}
