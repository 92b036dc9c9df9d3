-- What a worker may do: everything here checks the fence first.
-- ARGV[2] id, ARGV[3] epoch, ARGV[4] lease: equality of both, never "at least" (G6). ARGV[5], known n: the number of the
-- newest event that this lease was told of.

local function holds(t, epoch, lease)
  return t and t.state == 'processing' and t.epoch == epoch and t.lease == lease
end

local function held(t)
  return holds(t, ARGV[3], ARGV[4])
end

-- The answer to a worker that does not hold the task (any more).
local function not_held(t)
  return {'LOST', t and t.state or 'gone'}
end

-- The fence and some more fields of a record, for what is called so often that the whole of it would cost too much.
-- nil when there is no such record.
local function glance(where, id, ...)
  local names = {'state', 'epoch', 'lease', ...}
  local values = redis.call('HMGET', where, unpack(names))
  if not values[1] then
    return nil
  end
  local t = {id = id, frames = {}}
  for i, name in ipairs(names) do
    t[name] = values[i] or ''
  end
  return t
end

-- Fewer events than the lease was told of: Redis went back in time (a failover, a restored file). Nothing more is put on
-- top: what is missing, text or items, is made again by the next run, and no event id is given to two events.
local function behind(t, known)
  return tonumber(t.n) < tonumber(known) and {'BEHIND', t.n} or nil
end

-- Why this lease may not write: the answer to its worker, or nil when it may.
local function refusal(t)
  return not held(t) and not_held(t) or behind(t, ARGV[5])
end

-- Why this lease may not end with this last text (at byte `at`), or nil. An end that is sent again, since its reply was
-- lost, is recognised by what the lease left (G14).
local function no_end(t, at)
  if t and t.left == ARGV[4] and not held(t) then
    return {'SAME', t.state}
  end
  return refusal(t) or at > tonumber(t.bytes) and {'GAP', t.bytes} or nil
end

local function renew(t, lease_ms)
  local till = int(NOW + lease_ms)
  redis.call('ZADD', P .. 'leases', till, t.id)
  return till
end

-- Write text and events; `at` -1 leaves the text as it is, whatever it is; one that is
-- smaller than what is stored is a rewind. `first` is the index in ARGV of the number of events; then name, data, aux for each.
-- Every 8 KiB of text a mark (event id, bytes, characters) is kept, from which a late viewer's replay is cut.
local function apply(t, at, text, length, first)
  local bytes = tonumber(t.bytes)
  if at < 0 then
    at, length = bytes, t.length
  end
  local where = key('text', t.id)
  local marks = key('marks', t.id)
  if at < bytes then
    redis.call('SET', where, at > 0 and redis.call('GETRANGE', where, 0, at - 1) or '')
    -- whoever stands behind this event has seen nothing that is taken back here (replays are cut by that)
    redis.call('HSET', key('task', t.id), 'rewound', int(tonumber(t.n) + tonumber(ARGV[first])),
      'far_length', int(math.max(tonumber(t.far_length), tonumber(t.length))))
    while true do
      local last = redis.call('LINDEX', marks, -1)
      if not last or tonumber(string.match(last, ' (%d+) ')) <= at then
        break
      end
      redis.call('RPOP', marks)
    end
  end
  if #text > 0 then
    redis.call('APPEND', where, text)
  end
  for i = first + 1, first + 3 * tonumber(ARGV[first]), 3 do
    emit(t, ARGV[i], ARGV[i + 1], ARGV[i + 2])
  end
  local total = at + #text
  if math.floor(total / 8192) > math.floor(at / 8192) then
    redis.call('RPUSH', marks, t.epoch .. '-' .. int(t.n) .. ' ' .. int(total) .. ' ' .. length)
  end
  t.bytes = int(total)
  t.length = length
end

-- New progress since the claim? Measured against the furthest point ever reached, so that going back and forth over
-- the same ground does not count. That point is written down (far_length, far_done) only when something goes back from
-- it: until then it is where the task is. Returns the pairs to save.
local function advance(t, length, done)
  local changed = {}
  local was, far_done = tonumber(t.done), math.max(tonumber(t.far_done), tonumber(t.done))
  if t.fresh ~= '1' and (tonumber(length) > math.max(tonumber(t.far_length), tonumber(t.length)) or tonumber(done) > far_done) then
    changed = {'fresh', '1'}
  end
  if tonumber(done) < was then
    changed[#changed + 1] = 'far_done'
    changed[#changed + 1] = int(far_done)
  end
  return changed
end
