"""Who may come in at all: origin, host, content type, what the client accepts.

Rule: names are compared exactly; nothing here matches by prefix, suffix or pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import TypeVar

from msgspec import Struct

from ferrule.schema.mirrored import NAME_CHARACTERS
from ferrule.transports.http.message import HttpRequest, header_lines
from ferrule.transports.http.settings import ANYONE, EndpointSettings

V = TypeVar("V")

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

JSON, EVENTS = "application/json", "text/event-stream"

MOST_REMEMBERED = 1024
LONGEST_REMEMBERED = 256
"""Bytes of a header's value whose judgement is kept; a longer one is judged each time."""
LONGEST_ACCEPT = 512
"""Characters of an Accept header that are looked at."""
EXPOSED = "Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy, DPoP-Nonce"
PREFLIGHT_HEADERS = (
    "Content-Type, Accept, Authorization, DPoP, Last-Event-ID, "
    "Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name"
)
PREFLIGHT_AGE = "600"
MOST_PREFLIGHT = 64
"""Names in a preflight request that are looked at."""
MOST_MIRRORED = 32
"""Names of mirrored arguments among them that are allowed."""


class Verdict(Struct, frozen=True):
    """Whether a request may come in, and what its answer must say for a browser to read it."""

    status: int = 0
    why: str = ""
    head: bytes = b""


class Remembering(dict[bytes, V]):
    """Judges a header's value once: clients send the same ones over and over. What is kept is bounded."""

    def __init__(self, judge: Callable[[str], V]) -> None:
        super().__init__()
        self._judge = judge

    def __missing__(self, value: bytes) -> V:
        verdict = self._judge(value.decode("latin-1"))
        if len(value) <= LONGEST_REMEMBERED:
            if len(self) >= MOST_REMEMBERED:
                self.clear()
            self[value] = verdict
        return verdict


class Guard:
    """Judges the head of every request."""

    def __init__(self, settings: EndpointSettings, bound_to: str) -> None:
        self._origins = frozenset(settings.allowed_origins)
        self._hosts: frozenset[str] | None = None
        if settings.allowed_hosts is not None:
            self._hosts = frozenset(map(str.lower, settings.allowed_hosts))
        elif is_loopback(bound_to):
            self._hosts = LOOPBACK_NAMES | {bound_to}
        self._knows_hosts = self._hosts is not None and ANYONE not in self._hosts
        self._verdicts: dict[tuple[bytes, bytes | None, bool], Verdict] = {}
        self.is_json = Remembering(_is_json)
        self.takes_both = Remembering(lambda accept: _accepts(accept, JSON) and _accepts(accept, EVENTS))
        self.takes_events = Remembering(lambda accept: _accepts(accept, EVENTS))

    def judge(self, request: HttpRequest) -> Verdict:
        """Judge where a request is meant for and which page sent it.

        Against DNS rebinding: MCP 2025-11-25 basic/transports, Security Warning; MCP 2026-07-28
        transports/streamable-http, Security & Endpoint.
        """
        headers = request.headers
        key = (headers.get(b"host", b""), headers.get(b"origin"), request.secure)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._look(*key)
            if len(key[0]) + len(key[1] or b"") <= LONGEST_REMEMBERED:
                if len(self._verdicts) >= MOST_REMEMBERED:
                    self._verdicts.clear()
                self._verdicts[key] = verdict
        return verdict

    def judge_host(self, request: HttpRequest) -> Verdict:
        """Judge only where a request is meant for; for what pages of any origin may ask."""
        return self._look(request.headers.get(b"host", b""), None, request.secure)

    def _look(self, host: bytes, origin: bytes | None, secure: bool) -> Verdict:
        named = host.decode("latin-1").lower()
        if self._hosts is not None and not self._is_for_us(named):
            return Verdict(403, "Forbidden: this server is not known by that Host; see allowed_hosts")
        if origin is None:
            return Verdict()
        page = origin.decode("latin-1")
        # Where any Host will do, a page of the same name may be one that was rebound to our address.
        if self._knows_hosts:
            same = f"{'https' if secure else 'http'}://{named}"
        else:
            same = None
        if page != same and page not in self._origins and ANYONE not in self._origins:
            return Verdict(403, "Forbidden: pages of this Origin may not call this server; see allowed_origins")
        if not page.isascii() or not page.isprintable():
            return Verdict(403, "Forbidden: malformed Origin")
        allowed = {"Access-Control-Allow-Origin": page, "Access-Control-Expose-Headers": EXPOSED, "Vary": "Origin"}
        return Verdict(head=header_lines(allowed))

    def _is_for_us(self, host: str) -> bool:
        assert self._hosts is not None
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name = host
        elif not port.isdecimal() or not port.isascii():
            return False
        return host in self._hosts or name in self._hosts or ANYONE in self._hosts

    def preflight(self, request: HttpRequest, methods: str) -> bytes:
        """Return what a browser wants to know before it sends the request proper (WHATWG Fetch, CORS preflight)."""
        wanted = request.headers.get(b"access-control-request-headers", b"").decode("latin-1")
        mirrored = []
        for part in wanted.split(",", MOST_PREFLIGHT)[:MOST_PREFLIGHT]:
            name = part.strip()
            if name.lower().startswith("mcp-param-") and NAME_CHARACTERS.issuperset(name):
                mirrored.append(name)
        return header_lines(
            {
                "Access-Control-Allow-Methods": methods,
                "Access-Control-Allow-Headers": ", ".join([PREFLIGHT_HEADERS, *mirrored[:MOST_MIRRORED]]),
                "Access-Control-Max-Age": PREFLIGHT_AGE,
            }
        )


def is_loopback(address: str) -> bool:
    """Whether an address, or `localhost`, is one of this machine that no other can reach."""
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def _is_json(content_type: str) -> bool:
    """Whether a media type is JSON (RFC 9110 §8.3.1). Its charset means nothing (RFC 8259 §11): UTF-8 may be said."""
    if len(content_type) > LONGEST_REMEMBERED:
        return False
    kind, *parameters = content_type.lower().split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            return False
    return kind.strip() == JSON


def _accepts(accept: str, kind: str) -> bool:
    """Whether an Accept header allows a media type: the most specific range that matches decides (RFC 9110 §12.5.1)."""
    if not accept:
        return True
    ranks = {kind: 2, f"{kind.partition('/')[0]}/*": 1, "*/*": 0}
    best = -1
    verdict = False
    for entry in accept[:LONGEST_ACCEPT].lower().split(","):
        name, *parameters = entry.split(";")
        rank = ranks.get(name.strip(), -1)
        if rank > best:
            best = rank
            verdict = not any(map(_is_zero, parameters))
    return verdict


def _is_zero(parameter: str) -> bool:
    """Whether a parameter is the weight 0, "not acceptable" (RFC 9110 §12.4.2)."""
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip().strip("0") in ("", ".")
