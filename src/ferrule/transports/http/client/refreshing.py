"""A tool call whose mirrored headers a server refused is sent once more, after the tools were listed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ferrule.errors import FerruleError, HttpFailed
from ferrule.transports.http.client.headers import About
from ferrule.transports.http.client.request import Once
from ferrule.transports.http.client.status import hand_on
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Request

if TYPE_CHECKING:
    from ferrule.transports.http.client.post import Post

MAX_PAGES = 50


async def refresh(post: Post, error: ErrorObject) -> None:
    """List the tools, then send the call with what the list says is to be mirrored; else the error stands."""
    try:
        await _list(post)
    except FerruleError:
        hand_on(post, error)
    else:
        post.send_again()


async def _list(post: Post) -> None:
    channel, meta = post.channel, post.said.meta
    if isinstance(meta, dict):
        meta = {key: value for key, value in meta.items() if key != "progressToken"}
    cursor: str | None = None
    for page in range(MAX_PAGES):
        params: dict[str, Any] = {"_meta": meta} if cursor is None else {"_meta": meta, "cursor": cursor}
        identity = f"tools-{post.unanswered[0] if post.unanswered else 0}-{page}"
        lines = channel.heading.mirrored("tools/list", About(meta=meta))
        assert lines is not None
        request = channel.heading.post(lines, encode(Request(identity, "tools/list", params)))
        asked = Once(request, "urgent", channel.options.max_message_size, identity)
        frame = await channel.ask(asked)
        if asked.status != 200:
            raise HttpFailed("the tools cannot be listed", asked.status)
        _, cursor = channel.known.learn(frame)
        if cursor is None:
            return
