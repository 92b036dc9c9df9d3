-- hooks: take callbacks that are due. A taken one comes due again after `hold` ms, should its taker die.
-- KEYS: hooks. ARGV: prefix, limit, hold ms.
-- Replies: a list of {member ("<id>:<generation>"), url, tries including this one, record pairs}.
-- flags: allow-oom
-- include: base
local answer = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(NOW), 'LIMIT', 0, tonumber(ARGV[2]))) do
  local id, generation = string.match(member, '^(.*):(%d+)$')
  local t = load(id)
  if not t or t.generation ~= generation or (t.callback or '') == '' then
    redis.call('ZREM', KEYS[1], member) -- deleted or replayed meanwhile
  else
    redis.call('ZADD', KEYS[1], int(NOW + tonumber(ARGV[3])), member)
    local tries = redis.call('HINCRBY', key('task', id), 'callback_tries', 1)
    answer[#answer + 1] = {member, t.callback, tries, redis.call('HGETALL', key('task', id))}
  end
end
return answer
