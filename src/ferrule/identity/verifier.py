"""The contract of whoever decides who sent a request, and the default, which lets everybody in.

Rule 1: a verifier is asked before anything of a request is read or run, on every transport that others can reach.
Rule 2: it fails closed. What is neither a principal, nor `ANONYMOUS`, nor a refusal lets nobody in.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from ferrule.errors import Refusal
from ferrule.identity.principal import CERTIFICATE, Principal

NOTHING: Mapping[str, Any] = {}


class Anonymous(Struct, frozen=True):
    """The verdict on a caller who may come in and is nobody in particular."""


ANONYMOUS = Anonymous()

Verdict = Principal | Anonymous | Refusal


class Certificate(Struct, frozen=True):
    """The certificate a TLS client has proved to own."""

    details: Mapping[str, Any]
    """As `ssl.SSLSocket.getpeercert` returns it."""
    der: bytes = b""
    """The certificate itself, for thumbprints (RFC 8705)."""

    @property
    def name(self) -> str:
        """The common name of its subject; empty where it has none."""
        for part in self.details.get("subject", ()):
            for kind, value in part:
                if kind == "commonName":
                    return str(value)
        return ""


class RequestFacts(Struct, frozen=True, kw_only=True):
    """What is known of a request, or of a connection where one carries many, before it is read."""

    transport: str
    """`http`, `websocket`, `graphql`, `tcp` or `unix`."""
    method: str = ""
    """The HTTP method; empty where there is none."""
    url: str = ""
    """The URL with its query, as the client wrote it and as far as we know it; empty where there is none."""
    root: str = ""
    """The path below which an ASGI application has mounted us; empty where it has not."""
    endpoint: str = ""
    """The path of the endpoint it is for, below `root`, where there are several; empty for the main one."""
    headers: Mapping[str, str] = NOTHING
    """By any spelling of a name; the values of one that came several times are joined with `, `."""
    address: str = ""
    """Where it came from."""
    certificate: Certificate | None = None
    proven: bool = False
    """Whether the caller behind an open connection is verified anew: a proof that counts once was shown before."""
    scope: Mapping[str, Any] = NOTHING
    """The ASGI scope, where an ASGI server took the request: what an application around us has found out."""
    notes: dict[Any, Any] = field(default_factory=dict)
    """What verifiers have read in all this: requests of one connection with the same head have the same facts.

    `structs.replace` copies the facts, and not the notes: whoever reads one looks whether it is of the same facts."""


class UsedOnce(Protocol):
    """What may be used once, over all processes of a server: `Stores.seen` is one."""

    async def add(self, key: str, ttl: float) -> bool:
        """Note a key for some seconds. Return False where it was noted before."""


class Verifier(ABC):
    """Decides who sent a request."""

    keep: float = 0.0
    """For how many seconds a verdict also holds for the next requests of the same connection with the same head; never
    beyond `Principal.expires`. 0 asks again for each. A connection that carries messages (WebSocket, TCP) is asked
    for once, and ends when its principal expires."""
    recheck: float = 0.0
    """After how many seconds the caller behind an open connection is verified anew, and an open stream ends so that its
    reader comes back; 0 where a verdict holds until the principal expires."""
    takes_token: bool = False
    """Whether a connection without headers (TCP, Unix) begins with a message that shows a token."""
    timeout: float = 10.0
    """How many seconds an awaited verdict may take; then the request is refused with 503."""

    @abstractmethod
    def verify(self, facts: RequestFacts) -> Verdict | Awaitable[Verdict]:
        """Return who sent a request, `ANONYMOUS`, or why it is refused; or something to await that does.

        A refusal may be raised as well. Its `status` and `headers` are the HTTP answer's.
        """

    async def start(self) -> None:  # noqa: B027 - most need nothing
        """Get ready: called before a server lets anybody reach it."""

    async def close(self) -> None:  # noqa: B027 - the same
        """Release what `start` took; harmless when called again."""

    def share_keys(self, keys: Sequence[bytes | str]) -> None:  # noqa: B027 - the same
        """Make what other processes of the server must understand with these keys: the first makes, all understand."""

    def share_seen(self, seen: UsedOnce) -> None:  # noqa: B027 - the same
        """Note what counts once where the other processes of the server note it too."""

    def demand(self, scopes: Sequence[str], headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the HTTP headers that tell a caller, known by the headers of its request, which scopes it needs."""
        return {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{" ".join(scopes)}"'}


class AllowAll(Verifier):
    """Lets everybody in; a client certificate says who it is."""

    keep = math.inf

    def verify(self, facts: RequestFacts) -> Verdict:
        """Return the principal a certificate names, or `ANONYMOUS`."""
        if facts.certificate is None:
            return ANONYMOUS
        return certified(facts.certificate)


ALLOW_ALL = AllowAll()


def certified(certificate: Certificate) -> Principal | Anonymous:
    """Return the principal a certificate names, `ANONYMOUS` where it names none."""
    name = certificate.name
    if name:
        return Principal(issuer=CERTIFICATE, subject=name)
    return ANONYMOUS
