"""Lua scripts for changes that must happen as a whole: Redis runs no other command while a script runs.

A script touches the keys of one model, or one mark, or one placement. There are three exceptions: DELETE also removes
the model from the list of names, SAVE and PUBLISH also look at the placement of the model's log, and SAVE also at the
mark of its partition.
The first lines of a script name its ``KEYS`` and ``ARGV``. Every script may run twice, because a client that got no
answer sends its command again. The second run changes nothing, and gives an answer that means the same.
"""

# What scripts answer beside the values of Written.
LOST = b"lost"

CLAIM = """
-- Raise the epoch. Returns it, the newest checkpoint, the digest of the checkpoint that was saved last, and, if there
-- is no newest one, the one before it.
-- The owner's nonce is part of the epoch. A retry finds its own nonce there and does not raise the epoch again;
-- otherwise it would fence itself.
local epoch, checkpoint, newest, previous, nonce = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local owner = redis.call('GET', epoch) or '0-'
local counter, by = string.match(owner, '^(%d+)%-(.*)$')
if by ~= nonce then
  owner = string.format('%010d-%s', counter + 1, nonce)
  redis.call('SET', epoch, owner)
end
local data, digest, damaged = unpack(redis.call('HMGET', checkpoint, 'data', 'digest', 'damaged'))
local before = not data and redis.call('HGET', previous, 'data')
return {owner, data, digest, damaged, redis.call('HGET', newest, 'saved'), before}
"""

CONDEMN = """
-- Mark the newest checkpoint as damaged, unless another one has replaced it in the meantime.
local checkpoint, digest = KEYS[1], ARGV[1]
if redis.call('HGET', checkpoint, 'digest') == digest then
  redis.call('HSET', checkpoint, 'damaged', 1)
end
"""

SAVE = """
-- Compare and set the checkpoint; keep the one before it, unless that is damaged. '' stands for any placement.
-- The order of the checks matters. 'lost' comes first: without an epoch the store has forgotten its owners. A position
-- that goes back is refused, because it can only be the late write of an earlier owner; 'back' allows it on purpose.
-- The owner of the partition reads it again from 'reread' on, if that is not ''.
local epoch, checkpoint, previous, newest, placement, mark, replacements = unpack(KEYS)
local owner, topic, partition, offset, version, digest, data, back, placed, reread = unpack(ARGV)
local actual = redis.call('GET', epoch)
if not actual then return 'lost' end
if actual ~= owner then return 'fenced' end
if placed ~= '' and (redis.call('GET', placement) or placed) ~= placed then return 'moved' end
local kept_topic, kept_partition, kept_offset, kept_digest, damaged = unpack(redis.call(
  'HMGET', checkpoint, 'home_topic', 'home_partition', 'next', 'digest', 'damaged'))
local function read_again()
  if reread == '' then return end
  if tonumber(redis.call('GET', mark) or '0') > tonumber(reread) then redis.call('SET', mark, reread) end
  redis.call('SET', replacements, (redis.call('GET', replacements) or 0) + 1)
end
if not damaged and kept_topic == topic and kept_partition == partition then
  if back == '0' and tonumber(offset) < tonumber(kept_offset) then return 'fenced' end
  if offset == kept_offset and digest == kept_digest then
    read_again()
    return 'already'
  end
end
if damaged then
  redis.call('DEL', checkpoint)
elseif kept_topic then
  -- RENAME comes first, because it needs no memory: a server that is full can still replace checkpoints.
  redis.call('RENAME', checkpoint, previous)
end
redis.call('HSET', checkpoint, 'home_topic', topic, 'home_partition', partition, 'next', offset,
  'version', version, 'digest', digest, 'epoch', owner, 'data', data)
redis.call('HSET', newest, 'saved', digest)
read_again()
return 'stored'
"""

PUBLISH = """
-- Keep a snapshot, and compare and set the pointer, or only note that the snapshot is withheld.
-- streams/stores/journal.py makes the same decisions for the other stores: change both together.
-- A version lower than the newest one of the same owner can only be a late retry. Another owner may publish a lower
-- version, because it may have started from an older checkpoint. 'placed' is as in SAVE.
local epoch, current, newest, history, blob, placement = unpack(KEYS)
local owner, version, digest, data, held, channel, placed = unpack(ARGV)
local actual = redis.call('GET', epoch)
if not actual then return 'lost' end
if actual ~= owner then return 'fenced' end
if placed ~= '' and (redis.call('GET', placement) or placed) ~= placed then return 'moved' end
local live_version, live_digest, pinned = unpack(redis.call('HMGET', current, 'version', 'digest', 'pinned'))
local last_version, last_digest, last_epoch = unpack(redis.call('HMGET', newest, 'version', 'digest', 'epoch'))
if last_epoch == owner and tonumber(version) < tonumber(last_version) then return 'fenced' end
-- While a version is pinned, newer ones are kept, but do not go live.
if pinned == '1' and held == '' then held = 'pinned' end
if live_version == version and live_digest == digest
  or held ~= '' and last_version == version and last_digest == digest then
  -- Its key says what it holds: bytes that were damaged, or are gone, come back.
  if redis.call('GET', blob) ~= data then redis.call('SET', blob, data) end
  return 'already'
end
local time = redis.call('TIME')
local at = string.format('%d.%06d', time[1], time[2])
local what = 'held'
redis.call('SET', blob, data)
redis.call('HSET', newest, 'version', version, 'digest', digest, 'epoch', owner)
if held == '' then
  what, pinned = 'published', '0'
  redis.call('HINCRBY', current, 'serial', 1)
  redis.call('HSET', current, 'version', version, 'digest', digest, 'epoch', owner, 'published_at', at, 'pinned', 0)
end
local serial = redis.call('HGET', current, 'serial') or 0
redis.call('XADD', history, '*', 'what', what, 'version', version, 'digest', digest, 'epoch', owner, 'at', at,
  'serial', serial, 'pinned', pinned or 0, 'reason', held)
redis.call('PUBLISH', channel, serial)
return 'stored'
"""

NOTE = """
-- Add a remark about the live snapshot to the history.
local epoch, current, history = unpack(KEYS)
local owner, what, reason, channel = unpack(ARGV)
local actual = redis.call('GET', epoch)
if not actual then return 'lost' end
if actual ~= owner then return 'fenced' end
local version, digest, publisher, serial, pinned = unpack(redis.call(
  'HMGET', current, 'version', 'digest', 'epoch', 'serial', 'pinned'))
if not version then return 'already' end
local time = redis.call('TIME')
redis.call('XADD', history, '*', 'what', what, 'version', version, 'digest', digest, 'epoch', publisher,
  'at', string.format('%d.%06d', time[1], time[2]), 'serial', serial, 'pinned', pinned, 'reason', reason)
redis.call('PUBLISH', channel, serial)
return 'stored'
"""

MOVE = """
-- Point at a stored snapshot. Returns the pointer, nothing if the bytes are gone, or false if the history has grown
-- since the client read it up to 'seen' ('' accepts any history). The client then decides again on the new history.
local current, history, blob = unpack(KEYS)
local version, digest, publisher, what, pinned, channel, seen, actor, reason = unpack(ARGV)
if seen ~= '' and #redis.call('XRANGE', history, '(' .. seen, '+', 'COUNT', 1) > 0 then return false end
if redis.call('EXISTS', blob) == 0 then return {} end
-- A full server refuses a script whose first write needs memory, but lets it finish after one that needs none.
redis.call('PERSIST', blob)
local time = redis.call('TIME')
local at = string.format('%d.%06d', time[1], time[2])
local serial = redis.call('HINCRBY', current, 'serial', 1)
redis.call('HSET', current, 'version', version, 'digest', digest, 'epoch', publisher, 'published_at', at,
  'pinned', pinned)
redis.call('XADD', history, '*', 'what', what, 'version', version, 'digest', digest, 'epoch', publisher, 'at', at,
  'serial', serial, 'pinned', pinned, 'reason', reason, 'actor', actor)
redis.call('PUBLISH', channel, serial)
return redis.call('HGETALL', current)
"""

COMPARE_AND_SET = """
-- Compare and set the mark of a partition, or a placement; '' stands for none. A value that is
-- already what it should become is a retry, and counts as success.
-- 'replacements' counts what commands changed behind the workers' backs: checkpoints that they replaced, and marks that
-- they set. A worker says in 'known' how many it knows of. If there were others, its mark may be out of date, and is
-- not written. A mark without 'known' is set by a command, and is counted.
local key, replacements = unpack(KEYS)
local before, after, known = unpack(ARGV)
local count = replacements and redis.call('GET', replacements) or '0'
if known and count ~= known then return 0 end
local actual = redis.call('GET', key) or ''
if actual ~= before and actual ~= after then return 0 end
redis.call('SET', key, after)
if replacements and not known then redis.call('SET', replacements, count + 1) end
return 1
"""

DELETE = """
-- Delete a model with all snapshots in its history. Their keys are not among KEYS, but they are in the same slot.
local names, history = KEYS[1], KEYS[2]
local model, snapshots, channel = unpack(ARGV)
for _, entry in ipairs(redis.call('XRANGE', history, '-', '+')) do
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  redis.call('UNLINK', snapshots .. fields.version .. ':' .. fields.digest)
end
redis.call('UNLINK', unpack(KEYS, 2))
redis.call('SREM', names, model)
redis.call('PUBLISH', channel, 0)
"""

DROP_EARLIER = """
-- Keep of a model only the newest checkpoint and this snapshot, with its entry in the history: the rest is dropped if
-- 'owner' owns the model and the snapshot is live. Snapshots' keys are not among KEYS, but in the same slot.
local epoch, current, previous, history = unpack(KEYS)
local owner, version, digest, snapshots = unpack(ARGV)
local actual = redis.call('GET', epoch)
if not actual then return 'lost' end
local live = redis.call('HMGET', current, 'version', 'digest')
if actual ~= owner or live[1] ~= version or live[2] ~= digest then return 'fenced' end
local entries, last = redis.call('XRANGE', history, '-', '+'), 0
local names = {}
for number, entry in ipairs(entries) do
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  names[number] = fields.version .. ':' .. fields.digest
  if names[number] == version .. ':' .. digest and (fields.what == 'published' or fields.what == 'held') then
    last = number
  end
end
for number, entry in ipairs(entries) do
  if names[number] ~= version .. ':' .. digest then redis.call('UNLINK', snapshots .. names[number]) end
  if number < last then redis.call('XDEL', history, entry[1]) end
end
redis.call('UNLINK', previous)
return 'stored'
"""

DROP = """
-- Drop a snapshot and its entries in the history, unless the history has grown since the client read it up to 'seen':
-- the snapshot may have been published again, or have become live, in the meantime. The next round drops it then.
local current, history, blob = unpack(KEYS)
local version, digest, seen = unpack(ARGV)
local live = redis.call('HMGET', current, 'version', 'digest')
if live[1] == version and live[2] == digest then return end
if #redis.call('XRANGE', history, '(' .. seen, '+', 'COUNT', 1) > 0 then return end
redis.call('UNLINK', blob)
redis.call('XDEL', history, unpack(ARGV, 4))
"""
