"""Rules of the messages themselves: JSON-RPC 2.0, as MCP uses it."""

from __future__ import annotations

from typing import Any

import msgspec

from ferrule.check.answer import Answer, Json, is_refusal, is_response, shown
from ferrule.check.case import Case
from ferrule.check.era import HANDSHAKE, STATELESS
from ferrule.check.rule import Verdict, broken, doubtful, judged, passed, rule, skipped
from ferrule.check.wire import NoAnswer
from ferrule.codes import ErrorCode
from ferrule.protocol.handshake import OLDEST, WITH_BATCHES

UNKNOWN_METHOD = "ferrule/no-such-method"
CUT = b'{"jsonrpc": "2.0", "id": 1, "meth'
"""A message that is no JSON."""


@rule(
    "messages/unknown-method",
    "an unknown method is refused with -32601",
    fix="answer a request whose method you do not know with the error -32601",
    page="basic",
    level="should",
)
async def unknown_method(case: Case) -> Verdict:
    """Ask for a method nobody has."""
    answer = await case.talk.request(UNKNOWN_METHOD)
    if answer.code == ErrorCode.METHOD_NOT_FOUND:
        return passed()
    return broken(f"{UNKNOWN_METHOD} was answered with {answer.told}")


@rule(
    "messages/id-echo",
    "a response has the id of its request, with the same JSON type",
    fix='copy the id as it came: 7 stays a number and "7" a string',
    page="basic",
)
async def id_echo(case: Case) -> Verdict:
    """Ask with ids of both types."""
    faults = []
    for identity in (7001, "7002", "seven-thousand", ""):
        answer = await case.talk.request(UNKNOWN_METHOD, identity=identity)
        given = answer.message.get("id")
        if type(given) is not type(identity) or given != identity:
            faults.append(f"the id {shown(identity)} came back as {answer.told}")
    return judged(faults)


def _is_silent(answer: Answer) -> str:
    """Return how an HTTP server answered a notification, where it must not answer so."""
    if answer.status == 0 or answer.status >= 400:
        return ""
    if answer.message or answer.batch or answer.events:
        return f"an unknown notification was answered with {answer.told}"
    return ""


@rule(
    "messages/notification-unanswered",
    "a notification is not answered, known or not",
    fix="send nothing for a message without an id, not even an error",
    page="basic",
)
async def notification_unanswered(case: Case) -> Verdict:
    """Send a notification nobody knows, then a request."""
    told = await case.talk.notify("notifications/ferrule/no-such-notification")
    after = await case.talk.request(UNKNOWN_METHOD)
    wrong = _is_silent(told)
    for message in after.others:
        if is_response(message) and message.get("id") not in case.talk.asked:
            wrong = f"an unknown notification was answered with {shown(message)}"
    return judged([wrong] if wrong else [])


@rule(
    "messages/parse-error",
    "a message that is no JSON is refused with -32700, and the next one is served",
    fix="answer with the error -32700 and no id (over HTTP with status 400), and go on reading",
    page="basic",
    level="should",
    kinds=("stdio", "tcp", "unix", "websocket", "memory", "http"),
)
async def parse_error(case: Case) -> Verdict:
    """Send a cut message, then a whole one."""
    async with case.conversation() as talk:
        _, headers = talk.envelope(UNKNOWN_METHOD)
        try:
            answer = await talk.wire.exchange(CUT, is_refusal, case.seconds / 2, headers)
        except NoAnswer as reason:
            if reason.gone:
                return broken(f"after a message that is no JSON {reason}")
            answer = Answer()
        after = await talk.request(UNKNOWN_METHOD)
    if after.error is None:
        return broken(f"the request after a message that is no JSON was answered with {after.told}")
    if answer.code == ErrorCode.PARSE_ERROR or 400 <= answer.status < 500:
        return passed()
    return broken(f"a message that is no JSON was answered with {answer.told}")


def _is_batch_of_pings(answer: Answer, identities: set[object]) -> bool:
    found: set[object] = set()
    batch: list[Any] = [*answer.batch, *answer.others, answer.message]
    for message in batch:
        if isinstance(message, dict) and is_response(message):
            found.add(message.get("id"))
    return identities <= found


@rule(
    "messages/batch",
    f"a server that agrees to {WITH_BATCHES.version} takes batches",
    fix=f"take an array of messages in {WITH_BATCHES.version}, or do not agree to that version",
    page="basic",
    eras=(HANDSHAKE,),
)
async def batch(case: Case) -> Verdict:
    """Agree to the version that has batches, and send one."""
    async with case.conversation(WITH_BATCHES.version) as talk:
        if talk.version != WITH_BATCHES.version:
            return skipped(f"the server does not speak {WITH_BATCHES.version}")
        pings = [{"jsonrpc": "2.0", "id": identity, "method": "ping"} for identity in ("b1", "b2")]
        _, headers = talk.envelope("ping")
        seen: set[object] = set()

        def wanted(message: Json) -> bool:
            seen.add(message.get("id"))
            return "batch" in message or "error" in message or {"b1", "b2"} <= seen

        try:
            answer = await talk.wire.exchange(msgspec.json.encode(pings), wanted, case.seconds / 2, headers)
        except NoAnswer as reason:
            return broken(f"a batch of two pings: {reason}")
    if _is_batch_of_pings(answer, {"b1", "b2"}):
        return passed()
    return broken(f"a batch of two pings was answered with {answer.told}")


@rule(
    "messages/unknown-members",
    "members of params and `_meta` that a server does not know are ignored",
    fix="let params and `_meta` have members you do not know",
    page="basic",
    level="should",
)
async def unknown_members(case: Case) -> Verdict:
    """Ask for a list with members of our own."""
    for capability in ("tools", "resources", "prompts"):
        if capability in case.talk.capabilities:
            extra = {"ferruleCheck": True, "_meta": {"com.example/ferrule-check": {"a": [1]}}}
            answer = await case.talk.request(f"{capability}/list", extra)
            if answer.result is not None:
                return passed()
            return broken(f"{capability}/list with a member of our own was answered with {answer.told}")
    return skipped("the server declares neither tools, resources nor prompts")


# -- rules on everything that was said


@rule(
    "messages/version",
    'every message has "jsonrpc": "2.0"',
    fix='write "jsonrpc": "2.0" into every message',
    page="basic",
)
async def version(case: Case) -> Verdict:
    """Look at every message of the conversation."""
    faults = []
    for message in case.talk.seen:
        if message.get("jsonrpc") != "2.0":
            faults.append(shown(message))
    return judged(faults, f"{len(case.talk.seen)} messages")


@rule(
    "messages/result-or-error",
    "a response has a result, which is an object, or an error, and not both",
    fix="answer with `result` or with `error`; a result is an object, if an empty one",
    page="basic",
)
async def result_or_error(case: Case) -> Verdict:
    """Look at every response of the conversation."""
    faults = []
    for message in case.talk.responses:
        both = "result" in message and "error" in message
        if both or ("result" in message and not isinstance(message["result"], dict)):
            faults.append(shown(message))
    return judged(faults, f"{len(case.talk.responses)} responses")


@rule(
    "messages/error-shape",
    "an error has a whole number as its code, and a message",
    fix='write errors as {"code": integer, "message": string}',
    page="basic",
)
async def error_shape(case: Case) -> Verdict:
    """Look at every error of the conversation."""
    faults = []
    for message in case.talk.responses:
        if "error" not in message:
            continue
        error = message["error"]
        if (
            not isinstance(error, dict)
            or type(error.get("code")) is not int
            or not isinstance(error.get("message"), str)
        ):
            faults.append(shown(message))
    return judged(faults)


@rule(
    "messages/known-ids",
    "every response belongs to a request",
    fix="answer each request once, and nothing else",
    page="basic",
)
async def known_ids(case: Case) -> Verdict:
    """Look for responses to nothing."""
    faults = []
    asked = {shown(identity) for identity in case.talk.asked}
    for message in case.talk.responses:
        identity = message.get("id")
        key = shown(identity)
        if identity is None:
            continue
        if key not in asked:
            faults.append(f"a response to nothing: {shown(message)}")
    return judged(faults)


@rule(
    "messages/reserved-codes",
    "codes from -32020 to -32099 are used as the specification defines them",
    fix="use codes outside -32768 to -32000 for errors of your own",
    page="basic",
    eras=(STATELESS,),
)
async def reserved_codes(case: Case) -> Verdict:
    """Look at the codes of every error."""
    defined = {-32020, -32021, -32022}
    faults = []
    for message in case.talk.responses:
        error = message.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int) and -32099 <= code <= -32020 and code not in defined:
            faults.append(shown(message))
    return judged(faults)


@rule(
    "messages/requests-declared",
    "a server asks a client only for what the client declared",
    fix="look at the client's capabilities before you send roots/list, sampling/createMessage or elicitation/create",
    page={HANDSHAKE: "basic/lifecycle", STATELESS: "basic"},
)
async def requests_declared(case: Case) -> Verdict:
    """Look at every request of the server; ours declared nothing."""
    faults = []
    for message in case.talk.seen:
        if "method" not in message or "id" not in message:
            continue
        if case.era == STATELESS or message["method"] != "ping":
            faults.append(f"the server asked {shown(message)}")
    if faults and case.talk.version in (WITH_BATCHES.version, OLDEST.version):
        # These versions say SHOULD.
        return doubtful(faults[0])
    return judged(faults)
