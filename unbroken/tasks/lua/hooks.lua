-- hooks: take callbacks that are due. A taken one comes due again after `hold` ms, should its taker die.
-- KEYS: hooks. ARGV: prefix, limit, hold ms, how many for one owner at once (0 = any number), then owner, count pairs:
--   what the asker has under way already.
-- Replies: a list of {member ("<id>:<generation>"), url, tries including this one, record pairs}.
-- Owners that have enough under way are passed over. Where one has more due than a look can see behind, most of them
-- step back for a moment, so that the others come into sight (G4).
-- flags: allow-oom
-- include: base
local LOOK, FRONT, BACK = 1000, 100, 10000 -- members; of them left in their place; ms
local answer, limit, hold = {}, tonumber(ARGV[2]), tonumber(ARGV[3])
local most, taken = tonumber(ARGV[4]), {}
for i = 5, #ARGV, 2 do
  taken[ARGV[i]] = tonumber(ARGV[i + 1])
end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(NOW), 'LIMIT', 0, LOOK)
for i, member in ipairs(due) do
  if #answer == limit then
    break
  end
  local id, generation = string.match(member, '^(.*):(%d+)$')
  local f = redis.pcall('HMGET', key('task', id), 'generation', 'callback', 'owner')
  if f.err or f[1] ~= generation or not f[3] or (f[2] or '') == '' then
    redis.call('ZREM', KEYS[1], member) -- deleted or replayed meanwhile
  elseif most > 0 and (taken[f[3]] or 0) >= most then
    if #due == LOOK and i > FRONT then
      redis.call('ZADD', KEYS[1], int(NOW + BACK), member)
    end
  else
    taken[f[3]] = (taken[f[3]] or 0) + 1
    redis.call('ZADD', KEYS[1], int(NOW + hold), member)
    local tries = redis.pcall('HINCRBY', key('task', id), 'callback_tries', 1)
    if type(tries) == 'number' then -- a damaged record harms only its task
      answer[#answer + 1] = {member, f[2], tries, redis.call('HGETALL', key('task', id))}
    end
  end
end
return answer
