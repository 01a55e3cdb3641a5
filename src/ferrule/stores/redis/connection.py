"""Connection: one connection to Redis, of redis-py, made and used within a deadline; and what its errors mean."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from ferrule.errors import SetupError, StoreUnavailable

OLDEST = (6, 2)
"""The oldest Redis with all that is used: XADD with NOMKSTREAM and MINID."""

AWAY = ("LOADING", "MASTERDOWN", "READONLY", "BUSY", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN")
"""Replies by which a server says that it cannot work now; another may, or this one later."""
TAKES_NOTHING = ("OOM", "MISCONF")
"""Replies by which it refuses to write anything, whoever asks: it is full, or its disk is."""
REFUSES = ("NOAUTH", "WRONGPASS")
"""Replies that somebody has to act on."""


WORDS = {
    "AuthenticationError": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}
"""The first words of replies that redis-py makes classes of."""
WRAPPED = re.compile(r"[ -]([A-Z]{3,}) ")


class RedisAway(Exception):
    """Redis cannot be used now. `lasting` means that somebody has to act before trying again makes sense.

    `refused` means that it refuses everybody: nobody listens there, or what does takes no writes.
    """

    def __init__(self, reason: str, *, lasting: bool = False, refused: bool = False) -> None:
        super().__init__(reason)
        self.lasting = lasting
        self.refused = refused


class Address:
    """Where one Redis is; its repr has no credentials."""

    def __init__(self, url: str) -> None:
        try:
            self._pool = ConnectionPool.from_url(
                url,
                protocol=2,
                max_connections=1,
                driver_info=None,
                retry=Retry(NoBackoff(), 0),
                socket_connect_timeout=None,
                socket_timeout=None,
                health_check_interval=0,
            )
        except (ValueError, TypeError) as error:
            # The message repeats no more of the address than its scheme: it may hold a password.
            scheme = url.partition("://")[0][:16]
            raise SetupError(
                f"this is no Redis URL (scheme {scheme!r}): write redis://[user:password@]host:port/number, "
                "rediss:// for TLS, or unix://path"
            ) from error
        kept = self._pool.connection_kwargs
        self._name = str(kept.get("path") or f"{kept.get('host', 'localhost')}:{kept.get('port', 6379)}")

    def __repr__(self) -> str:
        return self._name

    async def connect(self) -> AbstractConnection:
        """Connect, authenticate and find out whether the server will do; raise RedisAway where it will not."""
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            self._judge(*await exchange(connection, [("ROLE",), ("INFO", "server")]))
        except AuthenticationError as error:
            await disconnect(connection)
            raise RedisAway(f"{self} refuses our credentials: {error}", lasting=True) from None
        except (RedisError, OSError) as error:
            await disconnect(connection)
            raise RedisAway(f"{self} cannot be reached: {error}", refused=_is_refused(error)) from None
        except BaseException:
            await disconnect(connection)
            raise
        return connection

    def _judge(self, role: Any, about: Any) -> None:
        if not isinstance(role, Exception) and role[0] != b"master":
            raise RedisAway(f"{self} is a replica", refused=True)
        if isinstance(about, Exception):
            # An account may be forbidden to ask; then the first script that fails tells.
            return
        for line in bytes(about).decode("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name == "redis_version" and tuple(map(int, value.split(".")[:2])) < OLDEST:
                raise RedisAway(f"{self} is Redis {value}: at least 6.2 is needed", lasting=True)


def _is_refused(error: BaseException | None) -> bool:
    """Return whether somebody said that nobody listens there, and not merely nothing was heard."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False


async def exchange(connection: AbstractConnection, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands and read their replies; a reply that is an error is returned as one."""
    await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    return await read_replies(connection, len(commands))


async def read_replies(connection: AbstractConnection, count: int) -> list[Any]:
    """Read so many replies."""
    replies: list[Any] = []
    for _ in range(count):
        try:
            replies.append(await connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


async def disconnect(connection: AbstractConnection) -> None:
    """Close a connection without waiting for the other side."""
    with contextlib.suppress(RedisError, OSError, asyncio.TimeoutError):
        await connection.disconnect(nowait=True)


def word_of(error: Exception) -> str:
    """Return the first word of an error reply, which says its kind; redis-py cuts the word off where it knows it."""
    name = type(error).__name__
    if name in WORDS:
        return WORDS[name]
    # Redis 6 wraps the reply to a command of a script: "Error running script (call to …): @user_script:5: -OOM …".
    text = str(error)
    inner = WRAPPED.search(text)
    if text.startswith("Error running script") and inner is not None:
        return inner[1]
    return text.partition(" ")[0]


def away(error: Exception) -> RedisAway | None:
    """Return what an error reply says about the server as a whole; None where it is about one command."""
    word = word_of(error)
    if word in REFUSES:
        return RedisAway(f"Redis refuses our credentials: {error}", lasting=True)
    if word in AWAY:
        return RedisAway(f"Redis cannot be used now: {word} {str(error).removeprefix(word).lstrip()}")
    return None


def unavailable(error: Exception) -> StoreUnavailable:
    """Return the error of a command that Redis refused, as our callers know it."""
    word = word_of(error)
    if word == "OOM":
        return StoreUnavailable("Redis is full (maxmemory)")
    if word == "MISCONF":
        return StoreUnavailable("Redis takes no writes, since it cannot save its own on its disk")
    if word == "NOPERM":
        return StoreUnavailable(f"the account is not allowed to run a command: {error}")
    return StoreUnavailable(f"Redis answered: {word}")
