"""The Lua scripts of the Redis stores: what must happen at once, by the clock of Redis.

They are run by EVALSHA; each new connection loads them. Numbers are written with `%.0f`, since Lua writes large ones
with an exponent. Leases and inboxes of other nodes are looked up by keys that are made in the script: this needs one
primary, not a Redis Cluster.
"""

from __future__ import annotations

import hashlib


class Script:
    """A script and the name Redis knows it by."""

    __slots__ = ("sha", "text")

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        # The name is SHA-1 because Redis computes it so; it protects nothing.
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)
"""

# -- records: a hash with the field r, or a string

READ = Script("""
-- KEYS: a record. ARGV: its type, the most bytes, the fields that are wanted. 'bad' for what is not ours.
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind == 'none' then return false end
if kind ~= ARGV[1] then return 'bad' end
if kind == 'string' then
  if redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[2]) then return 'bad' end
  return {redis.call('GET', KEYS[1])}
end
if redis.call('HSTRLEN', KEYS[1], 'r') > tonumber(ARGV[2]) then return 'bad' end
return redis.call('HMGET', KEYS[1], unpack(ARGV, 3))
""")

REPLACE = Script("""
-- KEYS: a value. ARGV: what it must be, what it shall be, milliseconds it is kept, 0 for ever.
if redis.call('TYPE', KEYS[1])['ok'] ~= 'string' then return 0 end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
""")

SET_ASIDE = Script("""
-- KEYS: a key that holds what is not ours, where it is set aside. ARGV: milliseconds it is kept.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return 1
""")

# -- sessions: r record, o owner, e epoch, c created, s seen

CREATE_SESSION = Script(
    NOW
    + """
-- KEYS: session. ARGV: record, owner, idle.
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
redis.call('HSET', KEYS[1], 'r', ARGV[1], 'o', ARGV[2], 'e', 1, 'c', stamp, 's', stamp)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return stamp
"""
)

SAVE_SESSION = Script(
    NOW
    + """
-- KEYS: session. ARGV: owner, epoch, idle, record or nothing. Only its owner may write, and only in its epoch.
local kept = redis.call('HMGET', KEYS[1], 'o', 'e')
if kept[1] ~= ARGV[1] or kept[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 's', stamp)
if ARGV[4] then redis.call('HSET', KEYS[1], 'r', ARGV[4]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
)

CLAIM_SESSION = Script(
    NOW
    + """
-- KEYS: session. ARGV: node, idle, the beginning of the keys of leases.
local owner = redis.call('HGET', KEYS[1], 'o')
if not owner then return 0 end
if owner ~= ARGV[1] and redis.call('EXISTS', ARGV[3] .. owner) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'o', ARGV[1], 's', stamp)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'e', 1)
"""
)

RELEASE_SESSION = Script("""
-- KEYS: session. ARGV: owner, epoch. Only its owner may leave it, and only in its epoch.
local kept = redis.call('HMGET', KEYS[1], 'o', 'e')
if kept[1] ~= ARGV[1] or kept[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'o', '')
redis.call('HINCRBY', KEYS[1], 'e', 1)
return 1
""")

# -- events: the number of an event is its id in a stream

APPEND_EVENT = Script("""
-- KEYS: stream. ARGV: the first number that is kept, the number, the event, milliseconds the stream is kept.
redis.call('XADD', KEYS[1], 'MINID', ARGV[1], ARGV[2], 'd', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
""")

# -- tasks: r record, s status; an index for each owner, with members that sort by creation and id

CREATE_TASK = Script("""
-- KEYS: task, index. ARGV: record, status, member, ttl or '', most, the beginning of the keys of tasks.
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
  local gone = false
  for _, member in ipairs(redis.call('ZRANGE', KEYS[2], 0, 999)) do
    local key = ARGV[6] .. string.sub(member, 17)
    local status = redis.call('HGET', key, 's')
    if not status or status == 'completed' or status == 'failed' or status == 'cancelled' then
      redis.call('ZREM', KEYS[2], member)
      redis.call('DEL', key)
      gone = true
      break
    end
  end
  if not gone then return 0 end
end
redis.call('HSET', KEYS[1], 'r', ARGV[1], 's', ARGV[2])
local left = redis.call('PTTL', KEYS[2])
redis.call('ZADD', KEYS[2], 0, ARGV[3])
if ARGV[4] == '' then
  redis.call('PERSIST', KEYS[2])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  if left ~= -1 and left < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
end
return 1
""")

UPDATE_TASK = Script("""
-- KEYS: task. ARGV: record, status, the statuses that are expected.
local status = redis.call('HGET', KEYS[1], 's')
for i = 3, #ARGV do
  if status == ARGV[i] then
    redis.call('HSET', KEYS[1], 'r', ARGV[1], 's', ARGV[2])
    return 1
  end
end
return 0
""")

# -- nodes: a lease each, and a set of all by the time their leases end

RENEW = Script(
    NOW
    + """
-- KEYS: lease, all nodes. ARGV: node, about, ttl.
local had = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. stamp)
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[3]), ARGV[1])
return had
"""
)

LIVING = Script(
    NOW
    + """
-- KEYS: all nodes. ARGV: the beginning of the keys of leases, most.
local found = {}
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. stamp, '+inf', 'LIMIT', 0, ARGV[2])) do
  local about = redis.call('GET', ARGV[1] .. node)
  if about then
    found[#found + 1] = node
    found[#found + 1] = about
  end
end
return found
"""
)

PUT_ENTRY = Script("""
-- KEYS: entries of a kind, their nodes. ARGV: name, node, record, the beginning of the keys of leases, most.
local node = redis.call('HGET', KEYS[2], ARGV[1])
if node and node ~= ARGV[2] and redis.call('EXISTS', ARGV[4] .. node) == 1 then return 0 end
if not node and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[5]) then return -1 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1
""")

DROP_ENTRY = Script("""
-- KEYS: entries of a kind, their nodes. ARGV: name, node.
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
""")

ENTRIES = Script("""
-- KEYS: entries of a kind, their nodes. ARGV: the beginning of the keys of leases. Those of dead nodes are taken out.
local nodes = redis.call('HGETALL', KEYS[2])
local lives = {}
local found = {}
for i = 1, #nodes, 2 do
  local node = nodes[i + 1]
  if lives[node] == nil then lives[node] = redis.call('EXISTS', ARGV[1] .. node) == 1 end
  if lives[node] then
    found[#found + 1] = nodes[i]
    found[#found + 1] = node
    found[#found + 1] = redis.call('HGET', KEYS[1], nodes[i]) or ''
  else
    redis.call('HDEL', KEYS[1], nodes[i])
    redis.call('HDEL', KEYS[2], nodes[i])
  end
end
return found
""")

# -- notices: a stream for each node, and a set of nodes for each topic

PUBLISH = Script("""
-- KEYS: nodes of a topic, or nothing. ARGV: keys of inboxes begin with, topic, body, sender, most, a node or ''.
local nodes = {ARGV[6]}
if ARGV[6] == '' then nodes = redis.call('SMEMBERS', KEYS[1]) end
local reached = 0
for _, node in ipairs(nodes) do
  local inbox = ARGV[1] .. node
  if redis.call('EXISTS', inbox) == 1 then
    local number = redis.call('INCR', inbox .. ':n')
    redis.call('XADD', inbox, 'MAXLEN', ARGV[5], '*', 'n', number, 't', ARGV[2], 'b', ARGV[3], 'f', ARGV[4])
    reached = reached + 1
  elseif ARGV[6] == '' then
    redis.call('SREM', KEYS[1], node)
  end
end
return reached
""")

SKIP = Script("""
-- KEYS: all inboxes. ARGV: keys of inboxes begin with, most. Leaves out a number everywhere: notices were lost.
for _, node in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local inbox = ARGV[1] .. node
  if redis.call('EXISTS', inbox) == 1 then
    redis.call('XADD', inbox, 'MAXLEN', ARGV[2], '*', 'n', redis.call('INCRBY', inbox .. ':n', 2))
  else
    redis.call('SREM', KEYS[1], node)
  end
end
return 1
""")

LISTEN = """
local function listen(nodes, node, inboxes, ttl)
  -- Takes out some that are gone, so that a set does not grow with every process that ever was.
  for _, other in ipairs(redis.call('SRANDMEMBER', nodes, 8)) do
    if other ~= node and redis.call('EXISTS', inboxes .. other) == 0 then redis.call('SREM', nodes, other) end
  end
  local added = redis.call('SADD', nodes, node)
  redis.call('PEXPIRE', nodes, ttl)
  return added
end
"""

SUBSCRIBE = Script(
    LISTEN
    + """
-- KEYS: nodes of a topic. ARGV: node, keys of inboxes begin with, ttl. Whether it was new there.
return listen(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
"""
)

OPEN_INBOX = Script(
    LISTEN
    + """
-- KEYS: inbox, its number, all inboxes. ARGV: node, keys of inboxes begin with, ttl.
-- Whether it was there, the number of the last notice, the place of the last one.
local had = redis.call('EXISTS', KEYS[1])
listen(KEYS[3], ARGV[1], ARGV[2], ARGV[3])
if had == 0 then redis.call('XADD', KEYS[1], '*', 'n', 0) end
redis.call('SET', KEYS[2], 0, 'NX')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
return {had, redis.call('GET', KEYS[2]), last[1][1]}
"""
)

# -- limits and locks

LEASE_TOKENS = Script(
    NOW
    + """
-- KEYS: bucket. ARGV: rate a second, burst, wanted.
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local kept = redis.call('HMGET', KEYS[1], 'k', 'a')
local tokens = tonumber(kept[1]) or burst
local passed = math.max(now - (tonumber(kept[2]) or now), 0)
tokens = math.min(burst, tokens + passed * rate / 1000)
local granted = math.min(wanted, tokens)
redis.call('HSET', KEYS[1], 'k', string.format('%.6f', tokens - granted), 'a', stamp)
-- A bucket that is full again need not be kept.
local full = math.min(burst / math.max(rate, 0.000001) * 1000, 86400000)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', full + 1000))
return string.format('%.6f', granted)
"""
)

ACQUIRE = Script("""
-- KEYS: lock, its last token. ARGV: ttl, milliseconds the last token is kept.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local token = redis.call('INCR', KEYS[2])
if token == 1 then
  -- The first, or the last one is forgotten: microseconds are larger than any token of an earlier time.
  local time = redis.call('TIME')
  token = time[1] * 1000000 + time[2]
  redis.call('SET', KEYS[2], string.format('%.0f', token))
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], string.format('%.0f', token), 'PX', ARGV[1])
return token
""")

RENEW_LOCK = Script("""
-- KEYS: lock. ARGV: token, ttl; without a ttl it is given back.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('DEL', KEYS[1])
""")

ALL = tuple(each for each in globals().values() if isinstance(each, Script))
