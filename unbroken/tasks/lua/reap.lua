-- reap: what nobody else would notice: due tasks, and leases that ran out.
-- KEYS: leases. ARGV: prefix, lease ms, limit.
-- Replies: {moved to ready, lost}.
-- flags: allow-oom
-- include: base queue
local limit = tonumber(ARGV[3])
return {promote(limit), reap(limit, tonumber(ARGV[2]))}
