-- Shared by all scripts: the clock, keys, the record, events. Put in front of a script by scripts.py.
--
-- Convention of every script: KEYS[1] is a key of the shard and fixes the slot; ARGV[1] is the shard's prefix
-- ("ub:{s0}:") from which the other keys of the same slot are made. There is no rollback: validate first, write last.
local P = ARGV[1]
local CLOCK = false -- a test build puts the name of a key here, and time is what that key holds
local AUDIT_MAX = 100000 -- entries; put in from the settings

local NOW_US -- Redis' clock in microseconds (below 2^53), the only clock there is (G18)
if CLOCK then
  NOW_US = tonumber(redis.call('GET', CLOCK)) * 1000
else
  local time = redis.call('TIME')
  NOW_US = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local NOW = math.floor(NOW_US / 1000) -- milliseconds

-- Numbers go out without an exponent.
local function int(x)
  return string.format('%.0f', x)
end

local function key(what, id)
  return P .. what .. ':' .. id
end

-- Milliseconds as ISO 8601 UTC; Redis' Lua has no os.date. Days to civil date after Howard Hinnant's algorithm.
local function iso(ms)
  local s = math.floor(ms / 1000)
  local z = math.floor(s / 86400) + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local rest = s % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, day, math.floor(rest / 3600),
    math.floor(rest / 60) % 60, rest % 60, ms % 1000)
end

-- The record as a table; nil when there is none, or when the key is of another type (G13: it harms only itself).
local function load(id)
  local raw = redis.pcall('HGETALL', key('task', id))
  if raw.err or #raw == 0 then
    return nil
  end
  local t = {}
  for i = 1, #raw, 2 do
    t[raw[i]] = raw[i + 1]
  end
  if not (t.state and t.owner and t.n and t.epoch) then
    return nil
  end
  t.id = id
  t.frames = {}
  t.first = tonumber(t.n) + 1
  return t
end

local function save(t, ...)
  redis.call('HSET', key('task', t.id), 'n', int(t.n), 'updated', int(NOW), ...)
end

-- Changes of state, kept apart from the log so that a task's story is read without its text.
local HISTORY = {status = true, done = true, failed = true, cancelled = true}

-- Append one event: to the log (the truth) and to what publish() will push (the fast path). `aux` stays in the log.
local function emit(t, name, data, aux)
  t.n = tonumber(t.n) + 1
  local id = t.epoch .. '-' .. int(t.n)
  if aux and aux ~= '' then
    redis.call('XADD', key('ev', t.id), id, 'e', name, 'd', data, 'x', aux)
  else
    redis.call('XADD', key('ev', t.id), id, 'e', name, 'd', data)
  end
  if HISTORY[name] then
    local history = key('hist', t.id)
    if redis.call('RPUSH', history, id .. ' ' .. name .. ' ' .. data) > 500 then
      redis.call('LPOP', history)
    end
  end
  if name == 'progress' then -- its id, so that a late viewer's replay finds the newest counts
    redis.call('HSET', key('task', t.id), 'counted', id)
  end
  t.frames[#t.frames + 1] = 'id: ' .. id .. '\nevent: ' .. name .. '\ndata: ' .. data .. '\n\n'
end

-- Push the new events to the hubs, ready to be sent: "<first n> <last n>\n" and the frames.
local function publish(t)
  if #t.frames > 0 then
    redis.call('PUBLISH', key('feed', t.id), int(t.first) .. ' ' .. int(t.n) .. '\n' .. table.concat(t.frames))
  end
end

-- A hint to the workers; every loop polls too.
local function tell(message)
  redis.call('PUBLISH', P .. 'workers', message)
end

-- `why` tells viewers what led here, where the state alone does not (a task continues: its worker was lost, or ...).
local function status(t, retry_at, why)
  local data = '{"state":"' .. t.state .. '","attempt":' .. t.attempts
  local reason = why or t.reason
  if reason ~= '' then
    data = data .. ',"reason":"' .. reason .. '"'
  end
  if retry_at then
    data = data .. ',"retry_at":"' .. iso(retry_at) .. '"'
  end
  emit(t, 'status', data .. ',"at":"' .. iso(NOW) .. '"}')
end

-- Change the state: the list of the owner, and one audit entry, in the same script as the change itself.
local function move(t, to, op, actor, reason)
  redis.call('ZREM', key('list', t.state .. ':' .. t.owner), t.id)
  redis.call('ZADD', key('list', to .. ':' .. t.owner), t.created_us, t.id)
  redis.call('XADD', P .. 'audit', 'MAXLEN', '~', AUDIT_MAX, '*', 'task', t.id,
    'owner', t.owner, 'actor', actor, 'op', op, 'from', t.state, 'to', to, 'reason', reason or '', 'at', int(NOW))
  t.state = to
  t.reason = reason or ''
end
