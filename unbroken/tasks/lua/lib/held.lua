-- What a worker may do: everything here checks the fence first.
-- ARGV[2] id, ARGV[3] epoch, ARGV[4] lease: equality of both, never "at least" (G6).

local function held(t)
  return t and t.state == 'processing' and t.epoch == ARGV[3] and t.lease == ARGV[4]
end

-- The answer to a worker that does not hold the task (any more).
local function not_held(t)
  return {'LOST', t and t.state or 'gone'}
end

local function renew(t, lease_ms)
  local till = int(NOW + lease_ms)
  redis.call('ZADD', P .. 'leases', till, t.id)
  return till
end

-- Would this text fit? It goes in at byte `at`; a smaller `at` than what is stored is a rewind, a larger one a gap.
local function fits(t, at)
  return at <= tonumber(t.bytes)
end

-- Write text and events; `at` -1 leaves the text as it is, whatever it is. `first` is the index in ARGV of the number of events; then name, data, aux for each.
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
