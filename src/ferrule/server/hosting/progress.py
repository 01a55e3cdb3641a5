"""Progress notices: what tells the client of one call how far it is."""

from __future__ import annotations

import logging

from msgspec import Struct

from ferrule.protocol.call import Call
from ferrule.schema.model import Token
from ferrule.schema.notices import PROGRESS, ProgressParams
from ferrule.server.hosting.links import Links
from ferrule.wire.messages import Notification

logger = logging.getLogger("ferrule.context")


class PlainProgress(Struct, omit_defaults=True, rename="camel", gc=False):
    """What `ProgressParams` says, made in a fifth of the time: a handler may tell of its progress very often."""

    progress_token: Token
    progress: float
    total: float | None = None
    message: str | None = None


class ProgressNotices:
    """Sends the progress of one call to its client; made with the first notice, for a client that asked to know."""

    __slots__ = ("_bucket", "_call", "_links", "_now", "_runs", "_token", "_trim")

    def __init__(self, call: Call, token: Token, links: Links) -> None:
        link = links.of(call)
        self._call = call
        self._token = token
        self._links = links
        self._runs = link.session.runs
        self._now = link.loop.time
        self._bucket = links.progress_bucket(call)
        """Shared by the calls of a link. A link that is gone has none, and none of its calls run."""
        self._trim = call.peer.revision.trims.get(ProgressParams)

    def tell(self, progress: float, total: float | None, message: str | None) -> bool:
        """Send a notice if it is news and one more may go out. Return whether it was sent."""
        call = self._call
        if not self._runs(call):
            return False
        before = call.progressed
        if before is not None and progress <= before:
            logger.warning("progress of %s must increase: %s after %s was dropped", call.method, progress, before)
            return False
        call.progressed = progress
        if self._bucket is None or not self._bucket.take(self._now()):
            self._links.dropped_progress += 1
            return False
        if self._trim is None:
            call.channel.send(Notification(PROGRESS, PlainProgress(self._token, progress, total, message)))
        else:
            params = ProgressParams(progress_token=self._token, progress=progress, total=total, message=message)
            call.channel.send(Notification(PROGRESS, self._trim(params)))
        return True
