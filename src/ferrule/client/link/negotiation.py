"""Negotiation of the era, the version and the capabilities: a probe with `server/discover`, else the handshake."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from ferrule.client.era.contract import ClientEra, declared
from ferrule.client.era.handshake import HandshakeEra
from ferrule.client.era.stateless import StatelessEra
from ferrule.errors import (
    CarrierError,
    ChildFailed,
    HeaderMismatch,
    HttpFailed,
    InitializeFailed,
    InitializeTimedOut,
    LinkLost,
    MissingCapability,
    PeerError,
    TimedOut,
    UnsupportedVersion,
    VersionMismatch,
)
from ferrule.protocol.call import Peer, Revision
from ferrule.protocol.handshake import LATER_EXTENSIONS, Handshake
from ferrule.protocol.handshake import REVISIONS as HANDSHAKE_REVISIONS
from ferrule.protocol.session import Phase
from ferrule.protocol.stateless import REVISIONS as STATELESS_REVISIONS
from ferrule.runtime.link import Link
from ferrule.schema.lifecycle import InitializeResult, ServerCapabilities, bounded
from ferrule.schema.model import SERVER_INFO_KEY, ClientCapabilities, Implementation
from ferrule.schema.notices import INITIALIZED
from ferrule.wire.channel import REPEATABLE
from ferrule.wire.messages import Notification

Mode = Literal["auto", "handshake", "stateless"]

PATIENCE, CHILD_PATIENCE = 10.0, 30.0
"""How long a server may take to answer the handshake, and one that has to be started first."""

SAYS_NOTHING = frozenset({401, 403, 408, 429})
"""Statuses that tell nothing of a server's age."""

MODERN_ONLY = frozenset({HeaderMismatch.code, MissingCapability.code})
"""Errors that over HTTP only a server of the stateless era has."""

_read_initialize = bounded(msgspec.json.Decoder(InitializeResult).decode)


class Discovery(Struct, rename="camel"):
    """A discover result, read leniently: hints and names may be missing or wrong."""

    supported_versions: list[str]
    capabilities: ServerCapabilities = ServerCapabilities()
    instructions: str | None = None
    server_info: Any = None
    meta: Any = msgspec.field(default=None, name="_meta")


_read_discovery = bounded(msgspec.json.Decoder(Discovery).decode)


class NegotiationResult(Struct, frozen=True):
    """What both sides agreed on."""

    era: ClientEra
    instructions: str | None = None


class FallBack(Exception):
    """The server belongs to the handshake era; `reason` is what to raise where that is not wanted."""

    def __init__(self, reason: Exception, *, respawn: bool = False) -> None:
        super().__init__()
        self.reason = reason
        self.respawn = respawn


class Negotiation(Struct, frozen=True):
    """What a client wants of a conversation, and how it agrees on that with a server."""

    mode: Mode
    version: str | None
    capabilities: ClientCapabilities
    implementation: Implementation
    init_timeout: float | None = None
    """How long the server may take to answer the handshake; None for PATIENCE, or CHILD_PATIENCE."""
    probe_timeout: float = 5.0
    log_level: str | None = None
    send_client_info: bool = True

    @property
    def probes(self) -> bool:
        """Whether the stateless era is tried first."""
        if self.version is not None:
            return self.version in STATELESS_REVISIONS
        return self.mode != "handshake"

    @property
    def falls_back(self) -> bool:
        """Whether the handshake may follow a failed probe."""
        return self.mode == "auto" and self.version is None

    def patience(self, link: Link) -> float:
        """Return how long the server may take to answer the handshake."""
        if self.init_timeout is not None:
            return self.init_timeout
        if starts_server(link):
            return CHILD_PATIENCE
        return PATIENCE

    def stateless(self, version: str) -> StatelessEra:
        """Make the rules of the stateless era under one of its versions."""
        implementation = None
        if self.send_client_info:
            implementation = self.implementation
        return StatelessEra(STATELESS_REVISIONS[version], self.capabilities, implementation, self.log_level)

    def declared(self, revision: Revision) -> ClientCapabilities:
        """Return what is declared under a revision."""
        if revision.two_way:
            return declared(self.capabilities, revision, without=LATER_EXTENSIONS)
        return declared(self.capabilities, revision)

    async def discover(self, link: Link, timeout: float) -> NegotiationResult:
        """Find out whether the server speaks the stateless era; raises FallBack when it does not.

        Meanwhile the server is taken for one of that era: a request of its own that comes in the same read as its
        answer gets no response (MCP basic/transports).
        """
        session = link.session
        methods = session.methods
        version = self.version or next(iter(STATELESS_REVISIONS))
        session.peer = Peer(STATELESS_REVISIONS[version], ServerCapabilities(), None)
        session.methods = {}
        try:
            return await self._discover(link, timeout)
        except BaseException:
            session.peer = None
            if not link.closed:
                session.methods = methods
            raise

    async def _discover(self, link: Link, timeout: float) -> NegotiationResult:
        if self.version is None:
            untried = list(STATELESS_REVISIONS)
        else:
            untried = [self.version]
        confused = False
        while True:
            version = untried.pop(0)
            try:
                found = await self._probe(link, version, timeout)
            except PeerError as error:
                supported = _supported(error)
                untried = [other for other in untried if other in supported]
                if not untried and version in supported and not confused:
                    # Refused, and named as supported in the same breath: taken at its word, once.
                    confused = True
                    untried = [version]
                if not untried and _always_answers(link) and error.code in MODERN_ONLY:
                    raise InitializeFailed(f"the server speaks {version} and refuses how we ask: {error}") from None
                if not untried:
                    raise _refused(error, version, supported) from None
            else:
                break
        version = self._mutual(version, found.supported_versions)
        link.session.peer = Peer(STATELESS_REVISIONS[version], found.capabilities, _server_info(found))
        link.session.methods = {}
        link.session.enter(Phase.INITIALIZED)
        return NegotiationResult(self.stateless(version), instructions=found.instructions)

    async def _probe(self, link: Link, version: str, timeout: float) -> Discovery:
        if link.channel is not None and link.channel.traits.handshake_only:
            raise FallBack(VersionMismatch(f"HTTP+SSE is older than {version} and cannot carry it"))
        params = self.stateless(version).introduction.stamp({})
        try:
            return _read_discovery(await link.request("server/discover", params, timeout=timeout, handling=REPEATABLE))
        except TimedOut:
            silence = InitializeTimedOut(f"the server did not answer server/discover within {timeout:g} s")
            if _always_answers(link):
                raise silence from None
            raise FallBack(silence) from None
        except HttpFailed as failure:
            # Whoever does not know the method says so; who may ask, how often, and a broken server are other matters.
            if 400 <= failure.status < 500 and failure.status not in SAYS_NOTHING:
                raise FallBack(failure) from None
            raise failure from None
        except msgspec.DecodeError as reason:
            malformed = InitializeFailed(f"the server's answer to server/discover is malformed: {reason}")
            raise FallBack(malformed) from None
        except LinkLost as lost:
            if _always_answers(link):
                raise _unreachable(lost) from None
            raise FallBack(lost, respawn=True) from None

    def _mutual(self, version: str, supported: list[str]) -> str:
        """Choose a version both sides speak, by preference the one the server just answered."""
        if version in supported:
            return version
        mutual = []
        for other in STATELESS_REVISIONS:
            if other in supported:
                mutual.append(other)
        if mutual and self.version is None:
            return mutual[0]
        raise _mismatch(f"the server speaks {', '.join(supported)}; we asked for {version}", supported)

    def is_stateless_after_all(self, failure: InitializeFailed) -> bool:
        """A server too slow for the probe may still say, when asked to initialize, that it has no handshake."""
        cause = failure.__cause__
        return self.falls_back and isinstance(cause, PeerError) and cause.code == UnsupportedVersion.code

    async def initialize(self, link: Link, era: Handshake) -> NegotiationResult:
        """Make the handshake."""
        timeout = self.patience(link)
        try:
            result = await self._initialize(link, era, timeout)
        except TimedOut:
            raise InitializeTimedOut(f"the server did not answer initialize within {timeout:g} s") from None
        except PeerError as error:
            raise InitializeFailed(f"the server refused initialize: {error}") from error
        except msgspec.DecodeError as reason:
            raise InitializeFailed(f"the server's answer to initialize is malformed: {reason}") from None
        except LinkLost as lost:
            if _always_answers(link):
                raise _unreachable(lost) from lost.__cause__
            raise
        if not era.opened(link.session, result, self.capabilities):
            spoken = ", ".join(era.versions)
            raise VersionMismatch(f"the server answered with version {result.protocol_version!r}; we speak {spoken}")
        _greet(link, result)
        return NegotiationResult(HandshakeEra(), instructions=result.instructions)

    async def renew(self, link: Link, era: Handshake) -> None:
        """Make the handshake again with a server that forgot it; raises LinkLost unless it agrees to the same."""
        result = await self._initialize(link, era, self.patience(link))
        peer = link.session.peer
        if peer is None or result.protocol_version != peer.version:
            raise LinkLost("the server refused the handshake it had accepted before")
        _greet(link, result)

    async def _initialize(self, link: Link, era: Handshake, timeout: float) -> InitializeResult:
        if self.version in HANDSHAKE_REVISIONS:
            version = self.version
        else:
            version = era.versions[0]
        revision = HANDSHAKE_REVISIONS[version]
        params = {
            "protocolVersion": version,
            "capabilities": self.declared(revision),
            "clientInfo": revision.trim(self.implementation),
        }
        return _read_initialize(await link.request("initialize", params, timeout=timeout, handling=REPEATABLE))


def _greet(link: Link, result: InitializeResult) -> None:
    """Set the agreed version on the channel, and send `notifications/initialized`."""
    assert link.channel is not None
    link.channel.agreed(result.protocol_version)
    link.channel.send(Notification(INITIALIZED))


def _supported(error: PeerError) -> list[str]:
    """Return the versions a server named when it refused ours; empty when it named none."""
    if isinstance(error.data, dict):
        supported = error.data.get("supported")
    else:
        supported = None
    if error.code != UnsupportedVersion.code or not isinstance(supported, list):
        return []
    return list(map(str, supported))


def starts_server(link: Link) -> bool:
    """Whether the server is a process that was started for this link."""
    return link.channel is not None and link.channel.traits.starts_peer


def _always_answers(link: Link) -> bool:
    """Over HTTP every server answers something, so silence is a failure and not an old server's way."""
    return link.channel is not None and link.channel.traits.always_answers


def _unreachable(lost: LinkLost) -> Exception:
    """Say why a server cannot be reached in the words of the carrier that tried."""
    cause = lost.__cause__
    if isinstance(cause, CarrierError):
        return cause
    return InitializeFailed(str(lost))


def unreached(error: LinkLost) -> Exception:
    """One sentence on why a server could not be reached."""
    cause = error.__cause__
    if isinstance(cause, ChildFailed):
        return cause
    return InitializeFailed(f"the server ended the link before the conversation was open: {cause or error}")


def _refused(error: PeerError, version: str, supported: list[str]) -> Exception:
    if not supported:
        return FallBack(VersionMismatch(f"the server does not speak {version}: {error}"))
    return _mismatch(f"the server refused version {version}; it speaks {', '.join(supported)}", supported)


def _mismatch(sentence: str, supported: list[str]) -> Exception:
    """A server that shares no version of this era with us may still share one of the other."""
    mismatch = VersionMismatch(sentence)
    if any(version in HANDSHAKE_REVISIONS for version in supported):
        return FallBack(mismatch)
    return mismatch


def _server_info(found: Discovery) -> Implementation | None:
    if isinstance(found.meta, dict):
        declared = found.meta.get(SERVER_INFO_KEY)
    else:
        declared = None
    try:
        return msgspec.convert(declared or found.server_info, Implementation | None)
    except msgspec.ValidationError:
        return None
