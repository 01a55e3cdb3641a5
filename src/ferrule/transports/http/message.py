"""One HTTP request and the way back for its answer: where the front ends (engine, ASGI) and the endpoint meet."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, overload

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import Certificate
from ferrule.schema.mirrored import NAME_CHARACTERS

T = TypeVar("T")

VALUE = re.compile(r"[\t -~]*")
"""What the value of a header of ours may hold; nothing in it ends a line."""


class HeadDecision(Struct, eq=False):
    """What was decided about a head, for the next request on the connection whose head differs only in its length.

    The engine asks it first: where it takes requests, the endpoint is not asked.
    """

    take: Callable[[HttpRequest, Responder], None] | None = None
    """Takes the next request; None while nothing is decided."""
    shared: HeadDecision | None = None
    """What was decided about the same head for every connection, whatever session it names; None where no other
    connection is told of it."""


class HttpRequest(Struct, eq=False):
    """One HTTP request, read whole."""

    method: str
    path: str
    """As it came: still percent-encoded, without the query."""
    query: str
    headers: dict[bytes, bytes]
    """Names in lower case; values stripped; what came several times is joined with a comma."""
    body: bytes = b""
    address: str = ""
    secure: bool = False
    root: str = ""
    """Where we are mounted: what stands before `path` in the client's URL."""
    decision: HeadDecision | None = None
    """What was decided about its head; None where no other request has the same."""
    identity: Principal | None = None
    """Who sent it, once that is settled (`Callers`); None for nobody in particular."""
    verdict_expires: float = math.inf
    """When the verdict on the sender expires, for later requests with the same head."""
    recheck_at: float = math.inf
    """When a stream that it opens ends, so that its reader comes back and is verified anew."""
    scope: Mapping[str, Any] | None = None
    """The ASGI scope it was made of."""
    certificate: Certificate | None = None
    """The certificate its sender has proved to own, where the engine asks for one."""
    http: str = "1.1"
    """The version of HTTP it came over."""

    def header(self, name: bytes) -> str:
        """Return a header's value, empty when it is absent."""
        return self.headers.get(name, b"").decode("latin-1")


class Responder(Protocol):
    """The way back of one HTTP request. What it takes is sent in order; nothing here waits.

    An answer is either one `reply`, or `begin`, any number of `write`, and `finish`. After the peer is gone all of
    them do nothing. `head` is lines of headers as they go over the wire, made by `header_lines`.
    """

    @property
    def gone(self) -> bool:
        """Whether nobody can read the answer any more."""

    @property
    def backlog(self) -> int:
        """How many bytes were written and not taken by the peer yet."""

    @property
    def unacknowledged(self) -> int | None:
        """How many of the bytes written last a lost peer may not have got; None where nobody can tell."""

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """Send a whole answer."""

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        """Start an answer of unknown length; the filler may be written between any two parts and means nothing."""

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""

    def finish(self) -> None:
        """End the answer."""

    def abort(self) -> None:
        """Abort the connection: what was written and not taken is lost."""

    def watch(self, lost: Callable[[], None]) -> None:
        """Call a function, once, if the peer goes away before the answer is finished; the last one given counts."""

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""


class Transfer(Struct, eq=False):
    """A connection on its way to another process."""

    descriptor: int
    """Its descriptor: whoever sends it closes it."""
    received: bytes
    """What was read of it and not answered."""
    transfers: int
    """How often it went to another process, this time included."""


class Transferable(Responder, Protocol):
    """The way back of a request on a connection that another process can take over."""

    def transfer(self, body: bytes) -> Transfer | None:
        """Let another process have the connection, the request with its body first; None where that cannot be."""


Handle = Callable[[HttpRequest, Responder], None]
"""What a front end drives: takes a request read whole, answers now or later, and never waits."""


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Write headers as they go over the wire; refuses what could end a line early (response splitting)."""
    lines = []
    for name, value in headers.items():
        if not isinstance(name, str) or not name or not NAME_CHARACTERS.issuperset(name):
            raise SetupError(f"not a header name: {name!r}")
        if not isinstance(value, str):
            raise SetupError(f"the value of the header {name} must be a str, not {type(value).__name__}")
        if not VALUE.fullmatch(value):
            raise SetupError(f"the value of the header {name} has characters no header may have")
        lines.append(f"{name.lower()}: {value}\r\n")
    return "".join(lines).encode("ascii")


class Headers(Mapping[str, str]):
    """The headers of one request, as text, by any spelling of their names."""

    __slots__ = ("_raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.lower().encode("latin-1", "replace")].decode("latin-1")

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, default: str | T, /) -> str | T: ...
    def get(self, name: str, default: str | T | None = None, /) -> str | T | None:
        """Return a header's value."""
        value = self._raw.get(name.lower().encode("latin-1", "replace"))
        if value is None:
            return default
        return value.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode("latin-1", "replace") in self._raw

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._raw)

    def __len__(self) -> int:
        return len(self._raw)
