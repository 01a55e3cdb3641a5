"""What an HTTP answer means that is neither a result nor a stream: try again, go elsewhere, or say what is wrong.

Rule: the body is read first. A JSON-RPC error in it is the server's word; the status alone is only HTTP's.
"""

from __future__ import annotations

import datetime
import time
from email.utils import parsedate_to_datetime

from ferrule.errors import HeaderMismatch, HttpFailed, MissingCapability, SetupError, UnsupportedVersion
from ferrule.transports.http.client.post import Post
from ferrule.transports.http.client.request import failure_in
from ferrule.transports.http.client.url import Place
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Failure

NOT_BEGUN = frozenset({429, 503})
"""Statuses of a server that did not begin what it was asked."""


def retry_after(value: str, now: float) -> float | None:
    """Read a Retry-After header (RFC 9110 §10.2.3), seconds or a date, as seconds from now; None for neither."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:12])
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, date.timestamp() - now)


OLD_TRANSPORT = frozenset({400, 404, 405})
"""How a server that has only the transport before this one may answer `initialize`."""

NEWEST_ONLY = frozenset({HeaderMismatch.code, MissingCapability.code, UnsupportedVersion.code})
"""Errors that only a server of the stateless era knows."""

UNAUTHORIZED = 401
FORBIDDEN = 403
MAX_QUOTE = 200

ADVICE = {
    UNAUTHORIZED: "it wants to know who we are: log in with auth=OAuth(), or give a token with auth=Bearer(…)",
    FORBIDDEN: "it does not allow this: is the token the right one?",
    404: "is the path of the URL right?",
    405: "is this the address of an MCP server?",
    406: "it offers neither JSON nor an event stream: is this the address of an MCP server?",
    413: "the message is too large for it",
    429: "it gets too many requests: wait before the next",
    503: "it is overloaded or stopping: try again later",
}


def judge(post: Post) -> None:
    """Decide what becomes of a message that got no MCP answer."""
    status = post.status
    if 200 <= status < 300:
        if post.unanswered:
            post.fail(_no_answer(post))
        else:
            post.over()
    elif status in (307, 308):
        # The others may turn a POST into a GET (RFC 9110 §15.4).
        _redirected(post)
    elif status == 404 and post.session:
        # MCP transports/streamable-http, "Session Management": the session is over, a new one is to be opened.
        post.channel.session_over(post)
    elif status not in post.channel.options.retry_statuses or not _again(post):
        _refused(post)


def _again(post: Post) -> bool:
    after = post.headers.get(b"retry-after")
    if after is None:
        wait = None
    else:
        wait = retry_after(after.decode("latin-1"), time.time())
    return post.repeat(begun=post.status not in NOT_BEGUN, wait=wait)


def _refused(post: Post) -> None:
    said = failure_in(post.body)
    error = None if said is None else said.error
    if post.method == "initialize" and post.status in OLD_TRANSPORT and not _answers_it(said):
        post.channel.fall_back(post, _failed(post, error))
    elif error is None or not post.unanswered or _is_not_its_word(post):
        post.fail(_failed(post, error))
    else:
        hand_on(post, error)


def _answers_it(said: Failure | None) -> bool:
    """Return whether an error is about what was asked; one that names no request says no more than its status."""
    return said is not None and (isinstance(said.id, int | str) or said.error.code in NEWEST_ONLY)


def _is_not_its_word(post: Post) -> bool:
    """Some statuses say more than their body: who may ask is HTTP's business, and a broken server is no old one."""
    return post.status in (UNAUTHORIZED, FORBIDDEN) or (post.status >= 500 and post.method == "server/discover")


def hand_on(post: Post, error: ErrorObject) -> None:
    """Hand the server's own error to whoever waits, under the id they wait for."""
    unanswered = post.unanswered
    post.unanswered = []
    post.over()
    for identity in unanswered:
        post.channel.deliver(encode(Failure(identity, error)))


def _redirected(post: Post) -> None:
    """Follow the server to another of its own paths, once; anybody else's address is for a person to judge."""
    here = post.channel.heading.place
    location = post.headers.get(b"location", b"").decode("latin-1")
    try:
        there: Place | None = here.resolve(location)
    except SetupError:
        there = None
    if there is not None and there.origin == here.origin and not post.moved:
        post.moved = True
        post.channel.heading.move(there)
        post.send_again()
    else:
        post.fail(
            HttpFailed(
                f"{here} redirects to {there or 'nowhere'}, which is not followed; "
                "use that address if you trust it with your messages",
                post.status,
                header_texts(post.headers),
            )
        )


def _failed(post: Post, error: ErrorObject | None) -> HttpFailed:
    status = post.status
    if error is not None:
        words = error.message
    else:
        words = _plain_words(post)
    said = f": {words[:MAX_QUOTE]}" if words else ""
    often = f" (tried {post.attempts + 1} times)" if post.attempts else ""
    # Who says why it forbids knows better than we what to do about it.
    if words and status == FORBIDDEN:
        advice = ""
    else:
        advice = ADVICE.get(status, "")
    if 300 <= status < 400:
        advice = "redirects of this kind are not followed: use the address it names"
    hint = f"; {advice}" if advice else ""
    sentence = f"{post.channel.heading.place} answered {post.what} with HTTP {status}{often}{said}{hint}"
    return HttpFailed(sentence, status, header_texts(post.headers))


def _plain_words(post: Post) -> str:
    """Return what a server said for people to read; a page for browsers is nothing for a sentence of ours."""
    if post.kind != b"text/plain":
        return ""
    text = " ".join(post.body[: 4 * MAX_QUOTE].decode("utf-8", "replace").split())
    if text.isprintable():
        return text
    return ""


def _no_answer(post: Post) -> HttpFailed:
    kind = post.kind.decode("latin-1")[:MAX_QUOTE]
    if kind == "text/html":
        came = "a web page"
        hint = "is this the address of an MCP server, or of a login or proxy page?"
    elif kind and post.body:
        came = f"content of type {kind}"
        hint = "JSON or an event stream was expected: is this an MCP server?"
    else:
        came = "nothing"
        hint = "a request needs an answer: is this an MCP server?"
    sentence = f"{post.channel.heading.place} answered {post.what} with HTTP {post.status} and {came}; {hint}"
    return HttpFailed(sentence, post.status, header_texts(post.headers))


def header_texts(headers: dict[bytes, bytes]) -> dict[str, str]:
    """Return the headers of an answer as str."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
