"""A client and a server in one line, in either era."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, Unpack

from ferrule.client.client import Client
from ferrule.client.features.answers import AnswerHandler
from ferrule.transports.contract import Reachable

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords

ERAS: tuple[Literal["handshake"], Literal["stateless"]] = ("handshake", "stateless")


def pair(
    server: Reachable,
    era: Literal["handshake", "stateless"] = "handshake",
    *,
    sampling: AnswerHandler | None = None,
    elicitation: AnswerHandler | None = None,
    url_elicitation: AnswerHandler | None = None,
    roots: Iterable[object] | Callable[[], object] | None = None,
    **options: Unpack[ClientKeywords],
) -> Client:
    """Return a client of this server, still through the codec: `async with pair(app, era) as client: …`."""
    options.setdefault("mode", era)
    return Client(
        server,
        sampling=sampling,
        elicitation=elicitation,
        url_elicitation=url_elicitation,
        roots=roots,
        **options,
    )
