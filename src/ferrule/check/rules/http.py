"""Rules of Streamable HTTP."""

from __future__ import annotations

from ferrule.check.answer import Answer, Json, excerpt
from ferrule.check.case import Case
from ferrule.check.era import HANDSHAKE, STATELESS, VERSIONS
from ferrule.check.http import JSON, STREAM, HttpWire, is_any
from ferrule.check.rule import Verdict, broken, doubtful, judged, passed, rule, skipped
from ferrule.check.rules.lifecycle import UNKNOWN_VERSION
from ferrule.check.rules.messages import UNKNOWN_METHOD
from ferrule.check.talk import SESSION
from ferrule.protocol.handshake import OLDEST, WITH_BATCHES

PAGE = {HANDSHAKE: "basic/transports", STATELESS: "basic/transports/streamable-http"}
OLD = PAGE[HANDSHAKE]
HTTP = ("http",)
STRANGER = "ferrule-check.invalid"
NO_SESSION = "the server gives no session"


def wire_of(case: Case) -> HttpWire:
    """Return the way to the server, which is HTTP where these rules apply."""
    wire = case.talk.wire
    assert isinstance(wire, HttpWire)
    return wire


async def harmless(case: Case, changes: dict[str, str | None]) -> Answer:
    """Send a request that changes nothing, with some headers changed, or left out where None."""
    method = "ping" if case.era == HANDSHAKE else "server/discover"
    message, headers = case.talk.envelope(method)
    for name, value in changes.items():
        headers.pop(name, None)
        if value is not None:
            headers[name] = value
    message["id"] = case.talk.new_id()
    return await case.talk.send(message, headers)


def is_refused(answer: Answer) -> bool:
    """Whether an HTTP status says no."""
    return 400 <= answer.status < 500


@rule(
    "http/media-type",
    "a request is answered with JSON or with a stream of events",
    fix="answer with Content-Type application/json or text/event-stream",
    page=PAGE,
    kinds=HTTP,
)
async def media_type(case: Case) -> Verdict:
    """Look at the type of an answer."""
    answer = await harmless(case, {})
    if answer.status == 200 and answer.kind in (JSON, STREAM):
        return passed(answer.kind)
    return broken(f"HTTP {answer.status} with Content-Type {answer.kind or 'none'}: {answer.told}")


@rule(
    "http/notification-accepted",
    "a notification is accepted with 202 and no body",
    fix="answer a notification with 202 and an empty body",
    page=PAGE,
    kinds=HTTP,
    eras=(HANDSHAKE,),
)
async def notification_accepted(case: Case) -> Verdict:
    """Send the notification every client sends."""
    async with case.conversation() as talk:
        answer = await talk.notify("notifications/cancelled", {"requestId": "ferrule-check-no-request"})
    if answer.status == 202 and not answer.body.strip():
        return passed()
    if answer.status >= 400:
        return skipped(f"the server does not accept it: HTTP {answer.status}")
    return broken(f"it was answered with HTTP {answer.status} {excerpt(answer.body)}")


@rule(
    "http/stream-shape",
    "each event of a stream is one message, and the response is the last",
    fix="write each message as one event, and end the stream after the response",
    page=PAGE,
    level="should",
    kinds=HTTP,
)
async def stream_shape(case: Case) -> Verdict:
    """Look at the events of an answer."""
    answer = await harmless(case, {})
    if answer.kind != STREAM:
        return skipped("the server answered without a stream")
    if wire_of(case).noise:
        return broken(f"an event is no message: {excerpt(wire_of(case).noise[0])}")
    if case.era == STATELESS and any(event.id for event in answer.events):
        return doubtful("events have ids, and these versions know no resumption")
    if not answer.ended:
        return broken("the stream went on after the response")
    return passed()


@rule(
    "http/get",
    "GET is answered with a stream of events or with 405",
    fix="answer GET with text/event-stream, or with 405 where you have nothing to send",
    page=PAGE,
    kinds=HTTP,
    eras=(HANDSHAKE,),
)
async def get(case: Case) -> Verdict:
    """Ask for a stream."""
    _, headers = case.talk.envelope("ping")
    wire = wire_of(case)
    reply = await wire.head("GET", {"Accept": STREAM, **headers}, case.seconds)
    if reply.status == 405 or (reply.status == 200 and reply.kind == STREAM):
        return passed(f"HTTP {reply.status}")
    return broken(f"GET was answered with HTTP {reply.status} and Content-Type {reply.kind or 'none'}")


@rule(
    "http/origin",
    "a page of another site is refused with 403",
    fix="compare the Origin header with the origins you serve, and answer 403 for any other",
    page=PAGE,
    kinds=HTTP,
)
async def origin(case: Case) -> Verdict:
    """Ask as a page of a stranger would."""
    answer = await harmless(case, {"Origin": f"https://{STRANGER}"})
    if answer.status == 403:
        return passed()
    if is_refused(answer) and case.talk.version != VERSIONS[case.era]:
        return passed(f"HTTP {answer.status}")
    if is_refused(answer):
        return doubtful(f"it was refused with HTTP {answer.status}, and not with 403")
    told = f"a request with Origin https://{STRANGER} was answered with HTTP {answer.status}"
    if wire_of(case).is_local:
        return broken(told)
    return doubtful(f"{told}: right only where every site may use this server")


@rule(
    "http/host",
    "a local server refuses a request for another host",
    fix="compare the Host header with localhost and 127.0.0.1: DNS rebinding reaches local servers by other names",
    page=PAGE,
    level="should",
    kinds=HTTP,
)
async def host(case: Case) -> Verdict:
    """Ask for a host of a stranger."""
    if not wire_of(case).is_local:
        return skipped("the server is not on this machine")
    answer = await harmless(case, {"Host": STRANGER})
    if is_refused(answer):
        return passed(f"HTTP {answer.status}")
    return broken(f"a request with Host {STRANGER} was answered with HTTP {answer.status}")


@rule(
    "http/content-type",
    "a message that is not sent as JSON is refused",
    fix="answer 415 where Content-Type is not application/json: any page may send text/plain without being asked",
    page=PAGE,
    level="should",
    kinds=HTTP,
)
async def content_type(case: Case) -> Verdict:
    """Post a message as plain text."""
    answer = await harmless(case, {"Content-Type": "text/plain"})
    if is_refused(answer):
        return passed(f"HTTP {answer.status}")
    return broken(f"a message sent as text/plain was answered with HTTP {answer.status}")


@rule(
    "http/version-header",
    "a version that does not exist is refused with 400",
    fix="answer 400 where MCP-Protocol-Version names a version you do not speak",
    page=OLD,
    kinds=HTTP,
    eras=(HANDSHAKE,),
)
async def version_header(case: Case) -> Verdict:
    """Name a version of another century."""
    if case.talk.version in (WITH_BATCHES.version, OLDEST.version):
        return skipped(f"{case.talk.version} knows no such header")
    answer = await harmless(case, {"MCP-Protocol-Version": UNKNOWN_VERSION})
    if answer.status == 400:
        return passed()
    return broken(f"MCP-Protocol-Version: {UNKNOWN_VERSION} was answered with HTTP {answer.status} {answer.told}")


# -- sessions


@rule(
    "http/session-characters",
    "the id of a session is visible ASCII, and no two are the same",
    fix="make session ids of random letters and digits",
    page=OLD,
    kinds=HTTP,
    eras=(HANDSHAKE,),
)
async def session_characters(case: Case) -> Verdict:
    """Look at the ids of two sessions."""
    first = case.talk.session
    if not first:
        return skipped(NO_SESSION)
    if not all("\x21" <= character <= "\x7e" for character in first):
        return broken(f"the id is {first!r}")
    async with case.conversation() as talk:
        second = talk.session
    if first == second:
        return broken("two sessions have the same id")
    return passed()


@rule(
    "http/session-unknown",
    "a session that does not exist is answered with 404",
    fix="answer 404 for an unknown session: only then does a client open a new one",
    page=OLD,
    kinds=HTTP,
    eras=(HANDSHAKE,),
)
async def session_unknown(case: Case) -> Verdict:
    """Use a session nobody has."""
    if not case.talk.session:
        return skipped(NO_SESSION)
    answer = await harmless(case, {"MCP-Session-Id": "ferrule-check-no-such-session"})
    if answer.status == 404:
        return passed()
    return broken(f"it was answered with HTTP {answer.status} {answer.told}")


@rule(
    "http/session-missing",
    "a request without its session is answered with 400",
    fix="answer 400 where a request other than initialize has no MCP-Session-Id",
    page=OLD,
    level="should",
    kinds=HTTP,
    eras=(HANDSHAKE,),
)
async def session_missing(case: Case) -> Verdict:
    """Leave the session out."""
    if not case.talk.session:
        return skipped(NO_SESSION)
    answer = await harmless(case, {"MCP-Session-Id": None})
    if answer.status == 400:
        return passed()
    return broken(f"it was answered with HTTP {answer.status} {answer.told}")


@rule(
    "http/session-deleted",
    "a session that was deleted is answered with 404",
    fix="forget a session when it is deleted, or answer DELETE with 405",
    page=OLD,
    kinds=HTTP,
    eras=(HANDSHAKE,),
)
async def session_deleted(case: Case) -> Verdict:
    """Delete a session and use it once more."""
    async with case.conversation() as talk:
        if not talk.session:
            return skipped(NO_SESSION)
        wire = talk.wire
        assert isinstance(wire, HttpWire)
        _, headers = talk.envelope("ping")
        deleted = await wire.ask("DELETE", headers, b"", is_any, case.seconds)
        if deleted.status == 405:
            return skipped("the server lets no client end its session")
        if not 200 <= deleted.status < 300:
            return broken(f"DELETE was answered with HTTP {deleted.status}")
        after = await talk.request("ping")
        talk.session = ""
    if after.status == 404:
        return passed()
    return broken(f"after DELETE with HTTP {deleted.status}, ping was answered with HTTP {after.status}")


# -- the stateless era


def mismatch_fault(answer: Answer, what: str) -> list[str]:
    """Return what is wrong with the refusal of headers that do not fit."""
    if answer.status == 400 and answer.code == -32020:
        return []
    return [f"{what} was answered with {answer.told}"]


@rule(
    "http/method-header",
    "a request whose Mcp-Method is missing or wrong is refused with 400 and -32020",
    fix="compare Mcp-Method with the method of the message, and answer 400 with the error -32020",
    page=PAGE[STATELESS],
    kinds=HTTP,
    eras=(STATELESS,),
)
async def method_header(case: Case) -> Verdict:
    """Leave the header out, then let it lie."""
    missing = await harmless(case, {"Mcp-Method": None})
    wrong = await harmless(case, {"Mcp-Method": "tools/list"})
    faults = mismatch_fault(missing, "server/discover without Mcp-Method")
    return judged(faults + mismatch_fault(wrong, "server/discover with Mcp-Method: tools/list"))


@rule(
    "http/version-mismatch",
    "a request whose header names another version than its `_meta` is refused with 400 and -32020",
    fix="compare MCP-Protocol-Version with the version in `_meta`, and answer 400 with the error -32020",
    page=PAGE[STATELESS],
    kinds=HTTP,
    eras=(STATELESS,),
)
async def version_mismatch(case: Case) -> Verdict:
    """Let the header name a version of another century."""
    answer = await harmless(case, {"MCP-Protocol-Version": UNKNOWN_VERSION})
    if answer.status == 400 and answer.code == -32022:
        # The version does not exist either, and no order of the two checks is set.
        return passed("HTTP 400, -32022")
    return judged(mismatch_fault(answer, f"MCP-Protocol-Version: {UNKNOWN_VERSION}"))


async def _something_named(case: Case) -> tuple[str, Json] | None:
    """Return a request with a name that changes nothing: the read of a resource, or a prompt."""
    if "resources" in case.talk.capabilities:
        for resource in (await case.listing("resources/list")).objects:
            if isinstance(resource.get("uri"), str):
                return "resources/read", {"uri": resource["uri"]}
    if "prompts" in case.talk.capabilities:
        for prompt in (await case.listing("prompts/list")).objects:
            if isinstance(prompt.get("name"), str):
                return "prompts/get", {"name": prompt["name"]}
    return None


@rule(
    "http/name-header",
    "a request whose Mcp-Name is wrong is refused with 400 and -32020",
    fix="compare Mcp-Name with the name or the uri of the message, and answer 400 with the error -32020",
    page=PAGE[STATELESS],
    kinds=HTTP,
    eras=(STATELESS,),
)
async def name_header(case: Case) -> Verdict:
    """Let the header name something else than a resource or a prompt that exists."""
    found = await _something_named(case)
    if found is None:
        return skipped("there is no resource and no prompt to ask for")
    method, params = found
    message, headers = case.talk.envelope(method, params)
    message["id"] = case.talk.new_id()
    headers["Mcp-Name"] = "ferrule-check-another-name"
    answer = await case.talk.send(message, headers)
    return judged(mismatch_fault(answer, f"{method} with another Mcp-Name"))


@rule(
    "http/unknown-method-status",
    "an unknown method is refused with 404 and -32601",
    fix="answer with HTTP 404 and the error -32601",
    page=PAGE[STATELESS],
    kinds=HTTP,
    eras=(STATELESS,),
)
async def unknown_method_status(case: Case) -> Verdict:
    """Ask for a method nobody has."""
    answer = await case.talk.request(UNKNOWN_METHOD)
    if answer.status == 404 and answer.code == -32601:
        return passed()
    return broken(f"{UNKNOWN_METHOD} was answered with {answer.told}")


@rule(
    "http/no-session",
    "no session is given",
    fix="leave Mcp-Session-Id out of answers in the stateless versions",
    page=PAGE[STATELESS],
    level="should",
    kinds=HTTP,
    eras=(STATELESS,),
)
async def no_session(case: Case) -> Verdict:
    """Look for a session in an answer."""
    answer = await harmless(case, {})
    if SESSION in answer.headers:
        return broken("an answer has the header Mcp-Session-Id")
    return passed()
