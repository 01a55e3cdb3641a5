"""Settling the era: probe with `server/discover`, else make the handshake."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from ferrule.errors import (
    InitializeFailed,
    InitializeTimedOut,
    LinkLost,
    PeerError,
    TimedOut,
    UnsupportedVersion,
    VersionMismatch,
)
from ferrule.protocol.call import Peer
from ferrule.protocol.handshake import REVISIONS as HANDSHAKE_REVISIONS
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.introduction import AlwaysIntroduced, Introduction, OnceIntroduced
from ferrule.protocol.session import Phase
from ferrule.protocol.stateless import REVISIONS as STATELESS_REVISIONS
from ferrule.runtime.link import Link
from ferrule.schema.lifecycle import InitializeResult, ServerCapabilities
from ferrule.schema.model import SERVER_INFO_KEY, ClientCapabilities, Implementation
from ferrule.schema.notices import INITIALIZED
from ferrule.wire.messages import Notification

Mode = Literal["auto", "handshake", "stateless"]

_read_initialize = msgspec.json.Decoder(InitializeResult).decode


class Discovery(Struct, rename="camel"):
    """A discover result, read with mercy: hints and names may be missing or wrong."""

    supported_versions: list[str]
    capabilities: ServerCapabilities = ServerCapabilities()
    instructions: str | None = None
    server_info: Any = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


_read_discovery = msgspec.json.Decoder(Discovery).decode


class Opened(Struct, frozen=True):
    """What the opening settled."""

    introduction: Introduction
    stateless: bool
    instructions: str | None = None


class FallBack(Exception):
    """The server belongs to the handshake era."""

    def __init__(self, *, respawn: bool = False) -> None:
        super().__init__()
        self.respawn = respawn


class Opening(Struct, frozen=True):
    """How a client opens a conversation."""

    mode: Mode
    version: str | None
    capabilities: ClientCapabilities
    implementation: Implementation
    init_timeout: float
    probe_timeout: float = 5.0
    log_level: str | None = None

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

    async def discover(self, link: Link) -> Opened:
        """Find out whether the server speaks the stateless era; raises FallBack when it does not."""
        version = self.version or next(iter(STATELESS_REVISIONS))
        introduction = AlwaysIntroduced(version, self.capabilities, self.implementation, self.log_level)
        params = introduction.stamp({}, None, None)
        try:
            raw = await link.request("server/discover", params, timeout=self.probe_timeout)
            found = _read_discovery(raw)
        except PeerError as error:
            self._judge(error)
            raise FallBack from None
        except (TimedOut, msgspec.DecodeError):
            raise FallBack from None
        except LinkLost:
            raise FallBack(respawn=True) from None
        if version not in found.supported_versions:
            if any(v in HANDSHAKE_REVISIONS for v in found.supported_versions):
                raise FallBack
            raise VersionMismatch(f"the server speaks {', '.join(found.supported_versions)}; we speak {version}")
        link.session.peer = Peer(STATELESS_REVISIONS[version], found.capabilities, _server_info(found))
        link.session.methods = {}
        link.session.enter(Phase.INITIALIZED)
        return Opened(introduction, True, found.instructions)

    def _judge(self, error: PeerError) -> None:
        """A server that knows our generation but shares no version with us cannot be spoken to."""
        supported = error.data.get("supported") if isinstance(error.data, dict) else None
        if error.code != UnsupportedVersion.code or not isinstance(supported, list):
            return
        if not any(version in HANDSHAKE_REVISIONS for version in supported):
            raise VersionMismatch(f"the server speaks {', '.join(map(str, supported))}, and we do not") from None

    async def initialize(self, link: Link, era: Handshake) -> Opened:
        """Make the handshake."""
        version = self.version if self.version in HANDSHAKE_REVISIONS else era.versions[0]
        revision = HANDSHAKE_REVISIONS[version]
        params = {
            "protocolVersion": version,
            "capabilities": revision.trim(self.capabilities),
            "clientInfo": revision.trim(self.implementation),
        }
        link.session.enter(Phase.INITIALIZING)
        try:
            result = _read_initialize(await link.request("initialize", params, timeout=self.init_timeout))
        except TimedOut:
            raise InitializeTimedOut(f"the server did not answer initialize within {self.init_timeout:g} s") from None
        except PeerError as error:
            raise InitializeFailed(f"the server refused initialize: {error}") from error
        except msgspec.DecodeError as reason:
            raise InitializeFailed(f"the server's answer to initialize is malformed: {reason}") from None
        if not era.opened(link.session, result, self.capabilities):
            spoken = ", ".join(era.versions)
            raise VersionMismatch(f"the server answered with version {result.protocol_version!r}; we speak {spoken}")
        assert link.channel is not None
        link.channel.send(Notification(INITIALIZED))
        return Opened(OnceIntroduced(), False, result.instructions)


def _server_info(found: Discovery) -> Implementation | None:
    declared = (found.meta or {}).get(SERVER_INFO_KEY) or found.server_info
    try:
        return msgspec.convert(declared, Implementation) if declared is not None else None
    except msgspec.ValidationError:
        return None
