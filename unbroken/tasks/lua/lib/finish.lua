-- What every way into a terminal state does.

-- Counted for the owner, and for everybody (no owner is called '').
local function hour(t, what)
  for _, owner in ipairs({t.owner, ''}) do
    local bucket = key('tally', owner .. ':' .. int(math.floor(NOW / 60000)))
    redis.call('HINCRBY', bucket, what, 1)
    redis.call('EXPIRE', bucket, 7200)
  end
end

-- The idempotency key of a task lives as long as the task, and `keep` ms beyond its end.
local function idem_expire(t, keep)
  if t.idem and t.idem ~= '' then
    redis.call('PEXPIRE', key('idem', t.idem), keep)
  end
end

-- Somebody wants to be called about this end (unbroken/server: the callbacks loop). One entry for each generation.
local function call_back(t)
  if t.callback and t.callback ~= '' then
    redis.call('ZADD', P .. 'hooks', int(NOW), t.id .. ':' .. t.generation)
  end
end
