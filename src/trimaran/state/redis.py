"""The store of many machines: Redis 6.2 or newer, or Valkey, by way of the package `redis` (extra `redis`).

Every key begins with `trimaran:{namespace}:`. The braces put all keys of a namespace on one node of a cluster, so each
operation can be one script, which is atomic. Leases and expiry use the clock of Redis; the clocks of workers do not matter.

The configuration of Redis decides how durable data is. With `appendonly yes` and `appendfsync always`, a task is on the disk
when `create` returns. With the usual `everysec`, a crash of the machine, not of the process, may lose the last second.

One connection listens for the whole process. When it breaks, the bus connects again with growing pauses, subscribes to the
same topics, and tells every listener of the gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final, TypeVar, final
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from msgspec.structs import replace

from trimaran.errors import ConfigError, Error

from .bus import StoreBus, wait_for_events
from .contracts import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    OPERATION_TIMEOUT,
    SCHEMA,
    BusMessage,
    EventsPage,
    EventWrite,
    SessionRecord,
    StoredEvent,
    StoreUnavailable,
    TaskRecord,
    TasksPage,
    read_cursor,
)
from .database import Database, DatabaseStore
from .health import Backoff
from .records import (
    event_topic,
    events_page,
    group_by_stream,
    id_taken,
    logger,
    new_task,
    pack,
    read_session,
    read_task,
    read_tasks,
    tasks_page,
    too_many,
)

T = TypeVar("T")

# Connections of one process: more do not make one Redis faster, and a rush must not open thousands.
_MAX_CONNECTIONS: Final = 32
# Seconds between two pings on the connection that listens, and of silence before it counts as dead.
_PING: Final = 2.0
_SILENCE: Final = 6.0
# Seconds after the store came back in which other processes may not listen yet: the longest pause between their attempts, and
# some for a busy machine.
_SETTLE: Final = 5.0
# Milliseconds for which Redis keeps an expired task, so that a sweep can report it.
_GRACE: Final = 86_400_000

# Errors of Redis while it loads its data, fails over, or has lost its cluster.
_TEMPORARY: Final = (
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "BUSY",
)

# Errors of Redis that only writes meet, and the remedy of each.
_NO_WRITES: Final = {
    "READONLY": "it is a replica: give the URL of the master, or of the sentinels that know it (redis+sentinel://)",
    "You can't write against a read only": "it is a replica: give the URL of the master, or of the sentinels that know it "
    "(redis+sentinel://)",
    "MISCONF": "it cannot save its data: fix the disk of Redis; its log has the reason",
    "NOREPLICAS": "it has fewer replicas than min-replicas-to-write asks for: bring them back",
}


class _Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="m"):
    sender: str
    data: bytes


_envelope: Final = msgspec.msgpack.Decoder(_Envelope)


# --- scripts ---------------------------------------------------------------------------------------------------------

_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function int(number) return string.format('%d', number) end
local function prolong(key, ends)
    local left = redis.call('PTTL', key)
    if left < ends - now then redis.call('PEXPIREAT', key, int(ends)) end
end
"""


@final
class _Script:
    def __init__(self, text: str, *, writes: bool = True) -> None:
        self.text: str = _NOW + text
        self.writes = writes
        self.sha: str = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_SESSION_PUT: Final = _Script("""
local id, data, stamp, ttl, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local held = tonumber(redis.call('HGET', KEYS[1], 'stamp') or '0')
if held ~= stamp then return -1 end
if most >= 0 and redis.call('ZCOUNT', KEYS[2], '(' .. int(now), '+inf') >= most then return -2 end
-- The first write must be one that a full Redis refuses: after any other write, Redis allows all.
redis.call('HSET', KEYS[1], 'data', data, 'stamp', int(stamp + 1))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(now))
if ttl >= 0 then
    redis.call('PEXPIREAT', KEYS[1], int(now + ttl))
    redis.call('ZADD', KEYS[2], int(now + ttl), id)
    prolong(KEYS[2], now + ttl)
end
return 1
""")

_SESSION_TOUCH: Final = _Script("""
local ends = now + tonumber(ARGV[2])
if redis.call('PEXPIREAT', KEYS[1], int(ends)) == 0 then return 0 end
redis.call('ZADD', KEYS[2], int(ends), ARGV[1])
prolong(KEYS[2], ends)
return 1
""")

_SESSION_DELETE: Final = _Script("""
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])
""")

_COUNT: Final = _Script(
    """
return redis.call('ZCOUNT', KEYS[1], '(' .. int(now), '+inf')
""",
    writes=False,
)

# Drops the oldest events of a stream over its limit of bytes, but not the newest. It measures the stream only when it has
# grown by an eighth of the limit, because that reads all of it. The number of events bounds small ones.
_TRIM: Final = """
local function trim(log, facts, added, most)
    if added < 1024 then return end
    if redis.call('HINCRBY', facts, 'grown', int(added)) * 8 <= most then return end
    redis.call('HSET', facts, 'grown', '0')
    local held, fits = 0, 0
    for _, event in ipairs(redis.call('XREVRANGE', log, '+', '-')) do
        held = held + #event[2][2]
        if held > most and fits > 0 then break end
        fits = fits + 1
    end
    redis.call('XTRIM', log, 'MAXLEN', int(fits))
end
"""

# KEYS: log, facts, streams of the session. ARGV: stream, ttl, channel, envelope, most, bytes, data. No data: end the stream.
_EVENT_ADD: Final = _Script(
    _TRIM
    + """
local ends = int(now + tonumber(ARGV[2]))
local number = 0
if ARGV[7] then
    number = redis.call('HINCRBY', KEYS[2], 'last', 1)
    redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[5], int(number) .. '-0', 'd', ARGV[7])
    trim(KEYS[1], KEYS[2], #ARGV[7], tonumber(ARGV[6]))
    redis.call('PEXPIREAT', KEYS[1], ends)
else
    redis.call('HSET', KEYS[2], 'ended', '1')
    redis.call('PEXPIREAT', KEYS[1], ends)
end
redis.call('PEXPIREAT', KEYS[2], ends)
redis.call('SADD', KEYS[3], ARGV[1])
prolong(KEYS[3], now + tonumber(ARGV[2]))
redis.call('PUBLISH', ARGV[3], ARGV[4])
return number
"""
)

# Many writes at once, packed: one argument for each event would cost more than all the rest. ARGV: the prefix of keys, the
# prefix of channels, envelope, most; of each stream session, name, ttl, whether it ends, numbers and sizes of its events; all
# events joined; the bytes of a stream. Each stream begins with a write that a full Redis refuses, unless it only ends, which
# makes room. Everything that can fail comes before the first write.
_EVENTS_WRITE: Final = _Script(
    _TRIM
    + """
local from, parts = 1, cmsgpack.unpack(ARGV[5])
for _, part in ipairs(parts) do
    part[7] = part[1] .. ':' .. part[2]
    part[8] = tonumber(redis.call('HGET', ARGV[1] .. 'stream:' .. part[7], 'last') or '0')
end
for _, part in ipairs(parts) do
    local session, stream, ttl, numbers, last = part[1], part[2], part[3], part[5], part[8]
    local log, facts, streams = ARGV[1] .. 'events:' .. part[7], ARGV[1] .. 'stream:' .. part[7], ARGV[1] .. 'streams:' .. session
    local ends, grown = int(now + ttl), 0
    for at, size in ipairs(part[6]) do
        local number = numbers[at] > 0 and numbers[at] or last + 1
        local data = string.sub(ARGV[6], from, from + size - 1)
        from = from + size
        if number > last then
            grown = grown + size
            local added = redis.pcall('XADD', log, 'MAXLEN', ARGV[4], int(number) .. '-0', 'd', data)
            if type(added) == 'table' and added.err then
                -- The log is ahead of its facts: Redis evicted one without the other.
                if string.find(added.err, 'equal or smaller', 1, true) then
                    local top = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
                    last = top and tonumber(string.match(top[1], '^%d+')) or last
                    number = numbers[at] > 0 and numbers[at] or last + 1
                end
                if number > last then
                    redis.call('XADD', log, 'MAXLEN', ARGV[4], int(number) .. '-0', 'd', data)
                end
            end
            last = math.max(last, number)
        end
    end
    if #part[6] == 0 then redis.call('PEXPIREAT', facts, ends) end
    if part[4] then
        redis.call('HSET', facts, 'last', int(last), 'ended', '1')
    else
        redis.call('HSET', facts, 'last', int(last))
    end
    trim(log, facts, grown, tonumber(ARGV[7]))
    redis.call('PEXPIREAT', log, ends)
    redis.call('PEXPIREAT', facts, ends)
    redis.call('SADD', streams, stream)
    prolong(streams, now + ttl)
    redis.call('PUBLISH', ARGV[2] .. 'events/' .. session .. '/' .. stream, ARGV[3])
end
return 1
"""
)

_EVENT_READ: Final = _Script(
    """
local facts = redis.call('HMGET', KEYS[2], 'last', 'ended')
local found = redis.call('XRANGE', KEYS[1], int(tonumber(ARGV[1]) + 1) .. '-0', '+', 'COUNT', ARGV[2])
return {tonumber(facts[1] or '0'), facts[2] and 1 or 0, found}
""",
    writes=False,
)

_EVENTS_DELETE: Final = _Script("""
for _, stream in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    redis.call('DEL', ARGV[1] .. stream, ARGV[2] .. stream)
end
return redis.call('DEL', KEYS[1])
""")

# Tasks. KEYS: task, all by end, working by lease. The indexes by owner are under the prefix in ARGV[1].
_TASKS: Final = """
local prefix, id = ARGV[1], ARGV[2]
local function is_over(status) return status == 'completed' or status == 'failed' or status == 'cancelled' end
local function facts(key)
    local found = redis.call('HMGET', key, 'stamp', 'status', 'expires', 'worker', 'lease', 'owner', 'data')
    if not found[1] or tonumber(found[3]) <= now then return nil end
    return {stamp = tonumber(found[1]), status = found[2], expires = tonumber(found[3]), worker = found[4],
            lease = tonumber(found[5]), owner = found[6], data = found[7]}
end
local function shown(task) return {task.data, task.stamp, task.worker, int(task.lease)} end
local function owned(owner) return prefix .. 'owned:' .. owner end
local function alive(owner) return prefix .. 'alive:' .. owner end
local function forget(id, owner)
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
    if owner then
        redis.call('ZREM', owned(owner), id)
        redis.call('ZREM', alive(owner), id)
    end
end
local function index(id, owner, status, lease, expires)
    redis.call('PEXPIREAT', KEYS[1], int(expires + GRACE))
    redis.call('ZADD', KEYS[2], int(expires), id)
    redis.call('ZADD', alive(owner), int(expires), id)
    prolong(KEYS[2], expires + GRACE)
    prolong(alive(owner), expires + GRACE)
    prolong(owned(owner), expires + GRACE)
    if status == 'working' then
        redis.call('ZADD', KEYS[3], int(lease), id)
        prolong(KEYS[3], expires + GRACE)
    else
        redis.call('ZREM', KEYS[3], id)
    end
end
""".replace("GRACE", str(_GRACE))

_TASK_CREATE: Final = _Script(
    _TASKS
    + """
local data, owner, created, expires, status, most = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
if facts(KEYS[1]) then return -1 end
if redis.call('EXISTS', KEYS[1]) == 1 then
    forget(id, redis.call('HGET', KEYS[1], 'owner'))
    redis.call('DEL', KEYS[1])
end
if most >= 0 and redis.call('ZCOUNT', alive(owner), '(' .. int(now), '+inf') >= most then return -2 end
redis.call('HSET', KEYS[1], 'data', data, 'stamp', '1', 'status', status, 'expires', int(expires), 'owner', owner,
           'worker', '', 'lease', '0')
redis.call('ZADD', owned(owner), created, id)
index(id, owner, status, 0, expires)
return 1
"""
)

_TASK_GET: Final = _Script(
    _TASKS
    + """
local task = facts(KEYS[1])
return task and shown(task)
""",
    writes=False,
)

_TASK_UPDATE: Final = _Script(
    _TASKS
    + """
local data, stamp, status, expires = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local task = facts(KEYS[1])
if not task or is_over(task.status) or task.stamp ~= stamp then return false end
task.stamp = stamp + 1
if is_over(status) then task.worker, task.lease = '', 0 end
redis.call('HSET', KEYS[1], 'data', data, 'stamp', int(task.stamp), 'status', status, 'expires', int(expires),
           'worker', task.worker, 'lease', int(task.lease))
index(id, task.owner, status, task.lease, expires)
task.data = ''
return shown(task)
"""
)

_TASK_CLAIM: Final = _Script(
    _TASKS
    + """
local worker, ms = ARGV[3], tonumber(ARGV[4])
local task = facts(KEYS[1])
if not task or is_over(task.status) or task.lease > now then return false end
task.stamp, task.worker, task.lease = task.stamp + 1, worker, now + ms
redis.call('HSET', KEYS[1], 'stamp', int(task.stamp), 'worker', worker, 'lease', int(task.lease))
if task.status == 'working' then redis.call('ZADD', KEYS[3], int(task.lease), id) end
return shown(task)
"""
)

# ARGV: ..., worker, heir, ms from now or -1 for no lease.
_TASK_LEASE: Final = _Script(
    _TASKS
    + """
local worker, heir, ms = ARGV[3], ARGV[4], tonumber(ARGV[5])
local task = facts(KEYS[1])
if not task or is_over(task.status) or worker == '' or task.worker ~= worker then return 0 end
local lease = ms < 0 and 0 or now + ms
redis.call('HSET', KEYS[1], 'worker', heir, 'lease', int(lease))
if task.status == 'working' then redis.call('ZADD', KEYS[3], int(lease), id) end
return 1
"""
)

_TASK_DELETE: Final = _Script(
    _TASKS
    + """
local task = facts(KEYS[1])
forget(id, redis.call('HGET', KEYS[1], 'owner'))
redis.call('DEL', KEYS[1])
return task and 1 or 0
"""
)

# KEYS[1] is the owner's. ARGV: ..., created and id of the cursor, owner, how many.
_TASK_LIST: Final = _Script(
    _TASKS
    + """
local created, after, owner, most = tonumber(ARGV[3]), ARGV[2], ARGV[4], tonumber(ARGV[5])
local place = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. int(created))
local found, gone = {}, {}
while #found < most do
    local some = redis.call('ZRANGE', KEYS[1], place, place + most - 1, 'WITHSCORES')
    if #some == 0 then break end
    for at = 1, #some, 2 do
        if #found < most and (tonumber(some[at + 1]) > created or some[at] > after) then
            local task = facts(prefix .. 'task:' .. some[at])
            if task then
                found[#found + 1] = shown(task)
            elseif redis.call('EXISTS', prefix .. 'task:' .. some[at]) == 0 then
                gone[#gone + 1] = some[at]
            end
        end
    end
    place = place + #some / 2
end
for _, id in ipairs(gone) do forget(id, owner) end
return found
""",
    writes=False,
)

_TASK_DUE: Final = _Script(
    _TASKS
    + """
local found = {}
local most = tonumber(ARGV[3])
local place = 0
while #found < most do
    local some = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', int(now), 'LIMIT', place, most)
    if #some == 0 then break end
    for _, id in ipairs(some) do
        local task = facts(prefix .. 'task:' .. id)
        if task and #found < most then found[#found + 1] = shown(task) end
    end
    place = place + #some
end
return found
""",
    writes=False,
)

_TASK_SWEEP: Final = _Script(
    _TASKS
    + """
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[3]))
for _, id in ipairs(gone) do
    local key = prefix .. 'task:' .. id
    forget(id, redis.call('HGET', key, 'owner'))
    redis.call('DEL', key)
end
return gone
"""
)


# --- the connection --------------------------------------------------------------------------------------------------


def _library() -> Any:
    try:
        return importlib.import_module("redis.asyncio"), importlib.import_module("redis")
    except ImportError:
        raise ConfigError('a store on Redis needs the package redis: pip install "trimaran[redis]"') from None


def _connect(url: str, options: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    """A client for commands, a client to listen with (another one only on a cluster), and all clients to close."""
    library, _ = _library()
    scheme, _, rest = url.partition("://")
    tls, _, kind = scheme.partition("+")
    try:
        if not kind:
            client = library.Redis.from_url(url, **options)
            return client, client, [client]
        return (_connect_cluster if kind == "cluster" else _connect_sentinel)(tls, rest, options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the store URL {_without_password(url)} cannot be used: {error}") from None


def _hosts(rest: str, port: int) -> tuple[str, list[tuple[str, int]], str, dict[str, str]]:
    """Credentials, hosts, path and options of a URL with several hosts."""
    address, _, query = rest.partition("?")
    netloc, _, path = address.partition("/")
    credentials, _, listed = netloc.rpartition("@")
    hosts: list[tuple[str, int]] = []
    for host in listed.split(","):
        split = urlsplit(f"//{host}")
        if not split.hostname:
            raise ValueError(f"{host!r} is not a host: write host:port,host:port")
        hosts.append((split.hostname, split.port or port))
    return credentials, hosts, path, {name: values[-1] for name, values in parse_qs(query).items()}


def _credentials(text: str) -> dict[str, Any]:
    user, _, password = text.partition(":")
    return {name: unquote(value) for name, value in (("username", user), ("password", password)) if value}


def _connect_cluster(tls: str, rest: str, options: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    library, _ = _library()
    cluster = importlib.import_module("redis.asyncio.cluster")
    credentials, hosts, _, _ = _hosts(rest, 6379)
    common = {**_credentials(credentials), **options, "ssl": tls == "rediss"}
    nodes = [cluster.ClusterNode(host, port) for host, port in hosts]
    # Every node receives what is published on any node.
    listener = library.Redis(host=hosts[0][0], port=hosts[0][1], **common)
    client = cluster.RedisCluster(startup_nodes=nodes, **common)
    return client, listener, [client, listener]


def _connect_sentinel(tls: str, rest: str, options: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    sentinel = importlib.import_module("redis.asyncio.sentinel")
    credentials, hosts, path, query = _hosts(rest, 26379)
    service, _, database = path.partition("/")
    if not service:
        raise ValueError("it does not name the service: redis+sentinel://host:26379/mymaster/0")
    common = {**options, "ssl": tls == "rediss"}
    watch = sentinel.Sentinel(
        hosts,
        sentinel_kwargs={
            **options,
            **({"password": query["sentinel_password"]} if "sentinel_password" in query else {}),
        },
        **common,
    )
    client = watch.master_for(service, db=int(database or 0), **_credentials(credentials))
    return client, client, [client, *watch.sentinels]


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    address, slash, path = rest.partition("/")
    hosts = address.rpartition("@")[2]
    return f"{scheme}://{hosts}{slash}{path.partition('?')[0]}"


@contextlib.contextmanager
def _library_faults() -> Generator[None]:
    """Work around faults of the library, and below it.

    Python 3.11's `wait_for`, which it uses, loses a cancellation that arrives together with a result: raise it again.
    uvloop raises RuntimeError for a write to a connection that was reset: raise ConnectionResetError instead. So does a
    connection that was taken from the pool while `_drop_idle` closed it: it has no writer any more, and the library does
    not look. Nothing was sent.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except RuntimeError as error:
        if "closed" not in str(error):
            raise
        raise ConnectionResetError("the connection was reset") from error
    except AttributeError as error:
        if error.obj is not None or error.name != "writelines":
            raise
        raise ConnectionResetError("the connection was closed") from error
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


@final
class _Database(Database):
    """The connections, and the translation of their failures."""

    def __init__(self, url: str, namespace: str, timeout: float) -> None:
        _, self._errors = _library()
        retry = importlib.import_module("redis.asyncio.retry")
        no_pause = importlib.import_module("redis.backoff").NoBackoff
        self.failures: Final = (self._errors.RedisError, OSError, TimeoutError)
        super().__init__(_without_password(url))
        self.prefix: str = f"trimaran:{{{namespace}}}:"
        self.timeout = timeout
        options: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": min(2.0, timeout),
            # The library must not retry: Redis may have run the command already, and only the caller knows whether
            # running it twice is safe. It must fix no error either: two tasks that share a connection would both reconnect.
            "retry": retry.Retry(no_pause(), 0, supported_errors=()),
        }
        self.client: Any
        self.listener: Any
        self.client, self.listener, self._open = _connect(url, options)
        self._free = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._is_checked = False
        self._at_work = 0
        self._idle = asyncio.Event()

    async def run(self, script: _Script, keys: list[str], *arguments: Any) -> Any:
        """Run a script, which is atomic."""
        return await self.attempt(lambda: self._evaluate(script, keys, arguments), writes=script.writes)

    async def _evaluate(self, script: _Script, keys: list[str], arguments: tuple[Any, ...]) -> Any:
        names = [self.prefix + key for key in keys]
        try:
            return await self.client.evalsha(script.sha, len(names), *names, *arguments)
        except self._errors.exceptions.NoScriptError:
            return await self.client.eval(script.text, len(names), *names, *arguments)

    async def attempt(self, work: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        self._require_open()
        self._health.check(writes=writes)
        self._at_work += 1
        try:
            # Covers the wait for a connection, connecting, and the command.
            async with asyncio.timeout(self.timeout), self._free:
                with _library_faults():
                    if not self._is_checked:
                        await self._check_schema()
                    result = await work()
        except TimeoutError:
            await self._drop_idle()
            raise self.failed(f"it did not answer within {self.timeout:g} s") from None
        except (self._errors.RedisError, OSError) as error:
            if not isinstance(error, self._errors.ResponseError) or isinstance(error, self._errors.ReadOnlyError):
                await self._drop_idle()
            raise self._translate(error) from None
        except ConfigError as error:  # another version has written there meanwhile
            self._is_hopeless = True
            raise self._health.failed(str(error)) from None
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()
        self._health.succeeded(writes=writes)
        return result

    async def _connect(self) -> None:
        await self.attempt(self.client.ping)

    async def _try_read(self) -> None:
        await self.attempt(lambda: self.client.get(f"{self.prefix}schema"))

    async def _try_write(self) -> None:
        await self.attempt(lambda: self.client.set(f"{self.prefix}check", b"", px=60_000), writes=True)

    async def _drop_idle(self) -> None:
        """Close idle connections: the same cause has broken them, and each would fail one more operation."""
        pool = getattr(self.client, "connection_pool", None)
        with contextlib.suppress(*self.failures):
            if pool is None:  # a cluster; it looks for its nodes again
                await self.client.aclose()
            else:
                await pool.disconnect(inuse_connections=False)

    async def nothing(self) -> None:
        """Do nothing: `attempt` alone checks whether the database is usable."""

    async def _check_schema(self) -> None:
        key = f"{self.prefix}schema"
        stored_schema = await self.client.get(key)  # first a read: a replica or a full Redis refuses writes
        if stored_schema is None:
            await self.client.set(key, str(SCHEMA), nx=True)
            stored_schema = await self.client.get(key)
        if stored_schema is not None and stored_schema != str(SCHEMA).encode():
            raise ConfigError(
                f"another version of Trimaran wrote the data in {self.where} under {self.prefix}: its schema is "
                f"{stored_schema[:20].decode(errors='replace')}, this one reads {SCHEMA}. Give another namespace, or use the version that wrote it"
            )
        self._is_checked = True

    def failed(self, text: str) -> StoreUnavailable:
        # The Redis that comes back may be another one, with other data.
        self._is_checked = self._is_hopeless = False
        return self._health.failed(f"the store at {self.where} is unavailable: {text}")

    def _translate(self, error: Exception) -> Error:
        known = self._errors.exceptions
        text = str(error) or type(error).__name__
        self._is_hopeless = False
        if isinstance(error, known.OutOfMemoryError) or "OOM command not allowed" in text:
            return self._health.full(
                f"the store at {self.where} is full: give Redis more memory (maxmemory), or shorter TTLs"
            )
        if isinstance(error, (known.AuthenticationError, known.AuthorizationError, known.NoPermissionError)):
            self._is_hopeless = True
            return self._health.failed(
                f"the store at {self.where} refuses the login: {text}. Check the user and password in its URL"
            )
        for words, remedy in _NO_WRITES.items():
            if words in text:  # in the text of a script error, its place comes first
                return self._health.failed(f"the store at {self.where} takes no writes: {remedy}", only_writes=True)
        if isinstance(error, known.ResponseError) and not text.startswith(_TEMPORARY):
            # About this command only: others may succeed.
            return StoreUnavailable(f"the store at {self.where} refused: {text}")
        return self.failed(text)

    async def close(self) -> None:
        # Wait until no connection is in use: the library would leak it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout):
                while self._at_work:
                    self._idle.clear()
                    await self._idle.wait()
        for client in self._open:
            with contextlib.suppress(*self.failures):
                async with asyncio.timeout(self.timeout):
                    await client.aclose()


# --- the four --------------------------------------------------------------------------------------------------------


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else int(seconds * 1000)


@final
class _Sessions:
    def __init__(self, database: _Database) -> None:
        self._database = database

    def _keys(self, id: str) -> list[str]:
        return [f"session:{id}", "sessions"]

    async def create(self, record: SessionRecord, *, ttl: float, most: int | None = None) -> SessionRecord:
        new = replace(record, stamp=1)
        keys, most = self._keys(record.id), -1 if most is None else most
        done = await self._database.run(_SESSION_PUT, keys, record.id, pack(new), 0, _ms(ttl), most)
        if done == -1:
            raise id_taken("session")
        if done == -2:
            raise too_many("sessions", most)
        return new

    async def get(self, id: str) -> SessionRecord | None:
        key = f"{self._database.prefix}session:{id}"
        data = await self._database.attempt(lambda: self._database.client.hget(key, "data"))
        return None if data is None else read_session(data)

    async def touch(self, id: str, *, ttl: float) -> bool:
        return bool(await self._database.run(_SESSION_TOUCH, self._keys(id), id, _ms(ttl)))

    async def put(self, record: SessionRecord, *, ttl: float | None = None) -> SessionRecord | None:
        if record.stamp < 1:
            return None
        updated = replace(record, stamp=record.stamp + 1)
        keys = self._keys(record.id)
        done = await self._database.run(_SESSION_PUT, keys, record.id, pack(updated), record.stamp, _ms(ttl), -1)
        return updated if done == 1 else None

    async def delete(self, id: str) -> bool:
        return bool(await self._database.run(_SESSION_DELETE, self._keys(id), id))

    async def count(self) -> int:
        return await self._database.run(_COUNT, ["sessions"])


@final
class _Events:
    def __init__(self, database: _Database, bus: _Bus, max_events: int, max_bytes: int) -> None:
        self._database = database
        self._bus = bus
        self._max_events = max_events
        self._max_bytes = max_bytes

    def _keys(self, session: str, stream: str) -> list[str]:
        return [f"events:{session}:{stream}", f"stream:{session}:{stream}", f"streams:{session}"]

    async def _add(self, session: str, stream: str, ttl: float, *data: bytes) -> int:
        channel, envelope = self._bus.sealed(event_topic(session, stream), b"")
        keys = self._keys(session, stream)
        limits = self._max_events, self._max_bytes
        return await self._database.run(_EVENT_ADD, keys, stream, _ms(ttl), channel, envelope, *limits, *data)

    async def append(self, session: str, stream: str, data: bytes, *, ttl: float) -> int:
        return await self._add(session, stream, ttl, bytes(data))

    async def end(self, session: str, stream: str, *, ttl: float) -> None:
        await self._add(session, stream, ttl)

    async def write(self, writes: Sequence[EventWrite]) -> None:
        if writes:
            prefix = self._database.prefix
            events: list[bytes] = []
            parts = [_part(*key, stream_writes, events) for key, stream_writes in group_by_stream(writes).items()]
            parts.sort(key=lambda part: not part[5])  # streams that only end come last
            channel, envelope = self._bus.sealed("", b"")
            # One key is enough to name the node of the cluster.
            await self._database.run(
                _EVENTS_WRITE,
                ["streams"],
                prefix,
                channel,
                envelope,
                self._max_events,
                pack(parts),
                b"".join(events),
                self._max_bytes,
            )

    async def read(self, session: str, stream: str, after: int, *, limit: int = 100) -> EventsPage:
        keys = self._keys(session, stream)[:2]
        last, ended, rows = await self._database.run(_EVENT_READ, keys, max(after, 0), max(1, limit))
        events = [StoredEvent(int(id.partition(b"-")[0]), fields[1]) for id, fields in rows]
        return events_page(events, last, bool(ended), after)

    async def wait(self, session: str, stream: str, after: int, *, timeout: float) -> bool:
        return await wait_for_events(self, self._bus.board, session, stream, after, timeout)

    async def delete(self, session: str) -> None:
        prefix = self._database.prefix
        await self._database.run(
            _EVENTS_DELETE, [f"streams:{session}"], f"{prefix}events:{session}:", f"{prefix}stream:{session}:"
        )


def _part(
    session: str, stream: str, writes: list[EventWrite], events: list[bytes]
) -> tuple[str, str, int, bool, list[int], list[int]]:
    """The part of a write for one stream. Its events are appended to `events`."""
    numbers: list[int] = []
    sizes: list[int] = []
    for write in writes:
        if write.data is not None:
            numbers.append(write.number)
            sizes.append(len(write.data))
            events.append(write.data)
    return session, stream, _ms(writes[-1].ttl), len(sizes) < len(writes), numbers, sizes


def _owner_key(owner: str) -> str:
    """An owner as part of a key, with a fixed length."""
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


@final
class _Tasks:
    def __init__(self, database: _Database) -> None:
        self._database = database

    async def _run(self, script: _Script, id: str, *arguments: Any, key: str | None = None) -> Any:
        keys = [key or f"task:{id}", "tasks", "working"]
        return await self._database.run(script, keys, self._database.prefix, id, *arguments)

    async def create(self, record: TaskRecord, *, most: int | None = None) -> TaskRecord:
        new = new_task(record)
        done = await self._run(
            _TASK_CREATE,
            record.id,
            pack(new),
            _owner_key(record.owner),
            record.created_ms,
            record.expires_ms,
            record.status,
            -1 if most is None else most,
        )
        if done == -1:
            raise id_taken("task")
        if done == -2:
            raise too_many("tasks of this caller", most or 0)
        return new

    async def get(self, id: str) -> TaskRecord | None:
        row = await self._run(_TASK_GET, id)
        return read_task(row) if row else None

    async def update(self, record: TaskRecord) -> TaskRecord | None:
        row = await self._run(_TASK_UPDATE, record.id, pack(record), record.stamp, record.status, record.expires_ms)
        if not row:
            return None
        return replace(record, stamp=row[1], worker=row[2].decode(), lease_ms=int(row[3]))

    async def claim(self, id: str, worker: str, *, seconds: float) -> TaskRecord | None:
        row = await self._run(_TASK_CLAIM, id, worker, _ms(seconds))
        return read_task(row) if row else None

    async def renew(self, id: str, worker: str, *, seconds: float) -> bool:
        return bool(await self._run(_TASK_LEASE, id, worker, worker, _ms(seconds)))

    async def release(self, id: str, worker: str) -> bool:
        return bool(await self._run(_TASK_LEASE, id, worker, "", -1))

    async def delete(self, id: str) -> bool:
        return bool(await self._run(_TASK_DELETE, id))

    async def list(self, owner: str, *, cursor: str | None = None, limit: int = 100) -> TasksPage:
        created, id = read_cursor(cursor)
        owner_key = _owner_key(owner)
        rows = await self._run(_TASK_LIST, id, created, owner_key, limit + 1, key=f"owned:{owner_key}")
        return tasks_page(read_tasks(rows), limit)

    async def count(self, owner: str | None = None) -> int:
        return await self._database.run(_COUNT, ["tasks" if owner is None else f"alive:{_owner_key(owner)}"])

    async def due(self, *, limit: int = 100) -> list[TaskRecord]:
        return read_tasks(await self._run(_TASK_DUE, "", limit))

    async def sweep(self, *, limit: int = 1000) -> list[str]:
        return [id.decode() for id in await self._run(_TASK_SWEEP, "", limit)]


@final
class _Bus(StoreBus):
    def __init__(self, database: _Database) -> None:
        super().__init__()
        self._database = database
        self._prefix = f"{database.prefix}bus:"
        self._listening: asyncio.Task[None] | None = None
        self._pubsub: Any = None  # the connection that listens, while there is one
        self._confirmed: dict[str, asyncio.Future[None]] = {}
        """Topics subscribed to; done when Redis has confirmed."""
        self._pending: dict[str, int] = {}
        """Confirmations still to come, by topic."""
        self._turn = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._lost_at = -math.inf
        """When the connection that listens broke, or came back after that."""

    def sealed(self, topic: str, data: bytes) -> tuple[str, bytes]:
        return self._prefix + topic, pack(_Envelope(self.name, data))

    async def _send(self, topic: str, data: bytes) -> int | None:
        channel, envelope = self.sealed(topic, bytes(data))
        receivers = await self._database.attempt(lambda: self._database.listener.publish(channel, envelope))
        # A node of a cluster counts only its own listeners.
        return receivers if receivers or self._database.listener is self._database.client else None

    def _is_settling(self) -> bool:
        return asyncio.get_running_loop().time() - self._lost_at < _SETTLE

    # Listening

    async def _open_topic(self, topic: str) -> None:
        # Raises at once, with a clear message, if the store is unavailable.
        await self._database.attempt(self._database.nothing)
        confirmed = self._confirmed.get(topic)
        if confirmed is None:
            confirmed = self._confirmed[topic] = asyncio.get_running_loop().create_future()
            if self._pubsub is not None:
                with contextlib.suppress(*self._database.failures):  # the listening task notices, and subscribes again
                    await self._subscribe(self._pubsub, topic)
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen(), name="trimaran store bus")
        try:
            async with asyncio.timeout(self._database.timeout):
                await asyncio.shield(confirmed)
        except TimeoutError:
            raise StoreUnavailable(
                f"the store at {self._database.where} did not confirm a subscription within {self._database.timeout:g} s"
            ) from None

    async def _subscribe(self, pubsub: Any, *topics: str) -> None:
        async with self._turn:
            for topic in topics:
                self._pending[topic] = self._pending.get(topic, 0) + 1
            with _library_faults():
                await pubsub.subscribe(*(self._prefix + topic for topic in topics))

    def _close_topic(self, topic: str) -> None:
        confirmed = self._confirmed.pop(topic, None)
        if confirmed is not None:
            confirmed.cancel()
        if self._pubsub is not None:
            task = asyncio.ensure_future(self._leave(self._pubsub, topic))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _leave(self, pubsub: Any, topic: str) -> None:
        with contextlib.suppress(*self._database.failures):
            async with self._turn:
                if topic not in self.board:  # nobody has subscribed again
                    with _library_faults():
                        await pubsub.unsubscribe(self._prefix + topic)

    async def _listen(self) -> None:
        """Receive messages for this process. Connects again whenever the connection breaks."""
        backoff = Backoff()
        gap = None
        while True:
            pubsub = self._database.listener.pubsub()
            failure = StoreUnavailable("it closed the connection")
            try:
                await self._read_messages(pubsub, backoff, gap)
            except self._database.failures as error:
                failure = backoff.failed(str(error))
            except Exception as error:  # any other error would end listening for good
                logger.exception("the bus of the store failed and starts again")
                failure = backoff.failed(str(error))
            finally:
                self._pubsub = None
                with contextlib.suppress(*self._database.failures):
                    await pubsub.aclose()
            gap = "the connection to the store was lost"
            self._lost_at = math.inf  # until it is back
            self._pending.clear()
            for topic, confirmed in self._confirmed.items():
                if confirmed.done():
                    self._confirmed[topic] = asyncio.get_running_loop().create_future()
            await asyncio.sleep(failure.retry_after)

    async def _read_messages(self, pubsub: Any, backoff: Backoff, gap: str | None) -> None:
        # A topic of our own keeps the connection subscribed, and so open, while nobody listens.
        missing = {f"life/{self.name}", *self.board.topics()}
        await self._subscribe(pubsub, *missing)
        self._pubsub = pubsub
        late = set(self.board.topics()) - missing
        if late:
            await self._subscribe(pubsub, *late)
        loop = asyncio.get_running_loop()
        alive = pinged = loop.time()
        while True:
            message = await pubsub.get_message(timeout=_PING)
            now = loop.time()
            if message is not None:
                alive = now
                backoff.succeeded()
                missing.discard(self._handle(message))
                if gap is not None and not missing:
                    # Only after every confirmation: a listener that reads the state now misses no later message.
                    self._lost_at = now
                    self.board.gap(gap)
                    gap = None
            elif now - alive > _SILENCE:
                raise TimeoutError(f"it sent nothing for {_SILENCE:g} s")
            if now - pinged >= _PING:
                pinged = now
                with _library_faults():
                    await pubsub.ping()

    def _handle(self, message: Any) -> str:
        """Handle one message. Returns the topic if the message confirms it, else an empty string."""
        kind, channel, data = message["type"], message["channel"], message["data"]
        topic = channel.decode(errors="replace").removeprefix(self._prefix) if isinstance(channel, bytes) else ""
        if kind == "subscribe":
            # A topic may be left and subscribed to again before Redis confirms: the last confirmation counts.
            self._pending[topic] = left = self._pending.get(topic, 1) - 1
            if left > 0:
                return ""
            del self._pending[topic]
            confirmed = self._confirmed.get(topic)
            if confirmed is not None and not confirmed.done():
                confirmed.set_result(None)
            return topic
        if kind == "message" and topic not in self._pending:  # else it is for listeners that have left
            try:
                envelope = _envelope.decode(data)
            except (msgspec.MsgspecError, TypeError):
                self.board.drop("not a message of a store")
            else:
                self.board.deliver(BusMessage(topic, envelope.data, envelope.sender))
        return ""

    async def close(self) -> None:
        await super().close()
        tasks = {task for task in (self._listening, *self._leaving) if task is not None}
        self._listening = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


# A token bucket, as the moment at which it is full again; see `trimaran.auth.limits`. KEYS: bucket. ARGV: interval and room,
# in microseconds. The clock is Redis's own: those of several machines differ.
_TAKE_TOKEN: Final = _Script(
    """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local full_at = tonumber(redis.call('GET', KEYS[1]) or '0')
if full_at < now then full_at = now end
local spent = full_at + tonumber(ARGV[1])
local wait = spent - tonumber(ARGV[2]) - now
if wait > 0 then return math.ceil(wait) end
redis.call('SET', KEYS[1], string.format('%.0f', spent), 'PX', math.ceil((spent - now) / 1000) + 1)
return 0
"""
)


@final
class _Rates:
    """Token buckets that all processes share. Not part of the contract of stores: only Redis has them."""

    def __init__(self, database: _Database) -> None:
        self._database = database

    async def check(self, key: str, interval: float, room: float) -> float:
        """Take a token: 0.0 if there was one, else in how many seconds there will be.

        Raises:
            StoreError: nobody knows.
        """
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        wait = await self._database.run(_TAKE_TOKEN, [f"rate:{digest}"], round(interval * 1e6), round(room * 1e6))
        return wait / 1e6


@final
class RedisStore(DatabaseStore[_Database]):
    """A store on Redis, for any number of processes and machines.

    Args:
        url: `redis://`, `rediss://`, `unix://`, `redis+sentinel://host,host/service/0`, `redis+cluster://host,host`;
            with `rediss+` for TLS.
        namespace: Separates several programs on one Redis.
        timeout: Seconds that any one operation may take.
        max_events: Events kept of each stream; the oldest go first.
        max_event_bytes: Bytes kept of each stream; the oldest events go first, the newest always stays.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "main",
        timeout: float = OPERATION_TIMEOUT,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        database = _Database(url, namespace, timeout)
        self.bus: Final = _Bus(database)
        super().__init__(database, self.bus)
        self.sessions: Final = _Sessions(database)
        self.events: Final = _Events(database, self.bus, max_events, max_event_bytes)
        self.tasks: Final = _Tasks(database)
        self.rates: Final = _Rates(database)
