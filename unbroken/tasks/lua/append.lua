-- append: text and events of running tasks; renews their leases, so that progress and heartbeat cannot drift apart.
-- KEYS: task records. ARGV: prefix, lease ms, then for each record: id, epoch, lease, known n, batch number, byte offset, text,
--   length after (code points), progress, done, total ('' = unknown), number of events, then name, data, aux for each.
-- Replies: a list, for each record {OK, n, wish} | {SAME, n, wish} this batch is written already | {LOST, state}
--   | {BEHIND, n} Redis knows less than this lease was told | {GAP, bytes} the text would leave a hole: our mistake
--   | {ERROR, message} of this record alone. Nothing is written then.
-- Atomic: the text of a task, its events and the counts are one fact. Tasks stand beside each other only because one
-- call for many of them costs much less.
-- include: base held
local lease_ms = tonumber(ARGV[2])

local function one(where, first)
  local t = glance(where, ARGV[first], 'n', 'batch', 'bytes', 'length', 'done', 'total', 'fresh', 'far_length', 'far_done',
    'wish', 'lease_until')
  if not holds(t, ARGV[first + 1], ARGV[first + 2]) then
    return not_held(t)
  end
  local no = behind(t, ARGV[first + 3])
  if no then
    return no
  end
  t.first = tonumber(t.n) + 1
  if tonumber(ARGV[first + 4]) <= tonumber(t.batch) then
    return {'SAME', t.n, t.wish}
  end
  local at, length, done = tonumber(ARGV[first + 5]), ARGV[first + 7], ARGV[first + 9]
  if at > tonumber(t.bytes) then
    return {'GAP', t.bytes}
  end
  local changed = advance(t, length, done)
  if ARGV[first + 10] ~= t.total then
    changed[#changed + 1] = 'total'
    changed[#changed + 1] = ARGV[first + 10]
  end
  -- a tenth of a lease is not worth a write: what was renewed a moment ago still holds
  if NOW + lease_ms - (tonumber(t.lease_until) or 0) >= lease_ms / 10 then
    changed[#changed + 1] = 'lease_until'
    changed[#changed + 1] = renew(t, lease_ms)
  end
  apply(t, at, ARGV[first + 6], length, first + 11)
  save(t, 'batch', ARGV[first + 4], 'bytes', t.bytes, 'length', length, 'progress', ARGV[first + 8], 'done', done,
    unpack(changed))
  publish(t)
  return {'OK', int(t.n), t.wish}
end

local replies, first = {}, 3
for i, where in ipairs(KEYS) do
  local fine, reply = pcall(one, where, first)
  replies[i] = fine and reply or {'ERROR', type(reply) == 'table' and reply.err or tostring(reply)}
  first = first + 12 + 3 * tonumber(ARGV[first + 11])
end
return replies
