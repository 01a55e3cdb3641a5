"""Rules of opening a conversation by `initialize`."""

from __future__ import annotations

from ferrule.check.answer import Json, shown
from ferrule.check.case import LISTS, Case
from ferrule.check.era import HANDSHAKE, STATELESS, VERSIONS
from ferrule.check.rule import Verdict, broken, doubtful, judged, passed, rule
from ferrule.check.wire import NoAnswer
from ferrule.codes import ErrorCode
from ferrule.protocol.handshake import REVISIONS

UNKNOWN_VERSION = "1999-01-01"


def identity_faults(info: object, what: str) -> list[str]:
    """Return what is wrong with the name and the version of a server."""
    if not isinstance(info, dict):
        return [f"{what} is {shown(info)}"]
    faults = []
    for member in ("name", "version"):
        if not isinstance(info.get(member), str):
            faults.append(f"{what}.{member} is {shown(info.get(member))}")
    return faults


def capability_faults(capabilities: object) -> list[str]:
    """Return what is wrong with the shape of capabilities."""
    if not isinstance(capabilities, dict):
        return [f"capabilities is {shown(capabilities)}"]
    faults = []
    for name in ("tools", "resources", "prompts", "logging", "completions"):
        if name not in capabilities:
            continue
        parts = capabilities[name]
        if not isinstance(parts, dict):
            faults.append(f"capabilities.{name} is {shown(parts)}")
            continue
        for flag in ("listChanged", "subscribe"):
            if flag in parts and not isinstance(parts[flag], bool):
                faults.append(f"capabilities.{name}.{flag} is {shown(parts[flag])}")
    return faults


@rule(
    "lifecycle/initialize-result",
    "initialize is answered with a version, capabilities and the server's name and version",
    fix="answer initialize with protocolVersion, capabilities and serverInfo {name, version}",
    page="basic/lifecycle",
    eras=(HANDSHAKE,),
)
async def initialize_result(case: Case) -> Verdict:
    """Look at the result of initialize."""
    result = case.talk.opening
    faults = identity_faults(result.get("serverInfo"), "serverInfo") + capability_faults(result.get("capabilities"))
    if not isinstance(result.get("protocolVersion"), str):
        faults.append(f"protocolVersion is {shown(result.get('protocolVersion'))}")
    if "instructions" in result and not isinstance(result["instructions"], str):
        faults.append(f"instructions is {shown(result['instructions'])}")
    return judged(faults, f"{case.talk.version}, {', '.join(case.talk.capabilities) or 'no capabilities'}")


@rule(
    "lifecycle/unknown-version",
    "a version the server does not know is answered with one it knows",
    fix="answer initialize with your newest version when you do not know the client's; it is no error",
    page="basic/lifecycle",
    eras=(HANDSHAKE,),
)
async def unknown_version(case: Case) -> Verdict:
    """Offer a version of another century, and then the one that comes back."""
    async with case.connection() as talk:
        answer = await talk.initialize(UNKNOWN_VERSION)
        if answer.result is None:
            return broken(f"initialize with {UNKNOWN_VERSION} was answered with {answer.told}")
        given = answer.result.get("protocolVersion")
    if given == UNKNOWN_VERSION:
        return broken(f"the server agreed to {UNKNOWN_VERSION}")
    if not isinstance(given, str) or given not in REVISIONS:
        return doubtful(f"the server answered with {shown(given)}, which is no version of this generation")
    return passed(f"it answered with {given}")


@rule(
    "lifecycle/older-version",
    "a version the server speaks is answered with the same version",
    fix="answer initialize with the client's version when you speak it",
    page="basic/lifecycle",
    eras=(HANDSHAKE,),
)
async def older_version(case: Case) -> Verdict:
    """Offer the version that was agreed on before."""
    async with case.connection() as talk:
        answer = await talk.initialize(case.talk.version)
    given = (answer.result or {}).get("protocolVersion")
    if given == case.talk.version:
        return passed()
    return broken(f"offered {case.talk.version}, which it agreed to before, the server answered with {answer.told}")


@rule(
    "lifecycle/stateless-version",
    "initialize never agrees to a version that has no initialize",
    fix=f"answer initialize that offers {VERSIONS[STATELESS]} with your newest older version",
    page="basic/lifecycle",
    level="should",
    eras=(HANDSHAKE,),
)
async def stateless_version(case: Case) -> Verdict:
    """Offer the newest version in the old way."""
    async with case.connection() as talk:
        answer = await talk.initialize(VERSIONS[STATELESS])
    given = (answer.result or {}).get("protocolVersion")
    if given == VERSIONS[STATELESS]:
        return broken(f"the server agreed to {given}, which knows no initialize")
    return passed()


@rule(
    "lifecycle/ping",
    "ping is answered with an empty result",
    fix="answer ping with {}",
    page="basic/utilities/ping",
    eras=(HANDSHAKE,),
)
async def ping(case: Case) -> Verdict:
    """Ping the server."""
    answer = await case.talk.request("ping")
    if answer.result is None:
        return broken(f"ping was answered with {answer.told}")
    if set(answer.result) - {"_meta"}:
        return doubtful(f"the result of ping is not empty: {answer.told}")
    return passed()


@rule(
    "lifecycle/early-request",
    "a request before initialize does not spoil the connection, and ping is answered",
    fix="refuse requests before initialize with an error, answer ping, and wait for initialize",
    page="basic/lifecycle",
    level="should",
    eras=(HANDSHAKE,),
    kinds=("stdio", "tcp", "unix", "websocket", "sse", "memory"),
)
async def early_request(case: Case) -> Verdict:
    """Ask too early, then open the conversation."""
    async with case.connection() as talk:
        pinged = await talk.request("ping")
        await talk.request("tools/list")
        answer = await talk.initialize(talk.version)
    if answer.result is None:
        return broken(f"initialize after an early request was answered with {answer.told}")
    if pinged.result is None:
        return broken(f"ping before initialize was answered with {pinged.told}")
    return passed()


DECLARED = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}
"""What a server must declare for each list."""


@rule(
    "lifecycle/declared-answered",
    "what the server declares, it answers",
    fix="answer the list of everything you declare, if with an empty one; or do not declare it",
    page={HANDSHAKE: "basic/lifecycle", STATELESS: "server/discover"},
)
async def declared_answered(case: Case) -> Verdict:
    """Ask for the list of everything that is declared."""
    faults = []
    for method, capability in DECLARED.items():
        if capability not in case.talk.capabilities:
            continue
        listing = await case.listing(method)
        first = listing.answers[0]
        if not isinstance((first.result or {}).get(LISTS[method]), list):
            faults.append(f"{capability} is declared, and {method} was answered with {first.told}")
    return judged(faults)


@rule(
    "lifecycle/offered-declared",
    "what the server offers, it declares",
    fix="declare the capability of everything you offer",
    page={HANDSHAKE: "basic/lifecycle", STATELESS: "server/discover"},
)
async def offered_declared(case: Case) -> Verdict:
    """Ask for the lists of what is not declared."""
    faults = []
    doubt = ""
    for method, capability in DECLARED.items():
        if capability in case.talk.capabilities:
            continue
        answer = await case.talk.request(method)
        result: Json = answer.result or {}
        if result.get(LISTS[method]):
            faults.append(f"{method} lists something, and {capability} is not declared")
        elif case.era == STATELESS and answer.code != ErrorCode.METHOD_NOT_FOUND:
            doubt = f"{capability} is not declared, and {method} was answered with {answer.told}"
    if doubt and not faults:
        return doubtful(doubt)
    return judged(faults)


@rule(
    "lifecycle/end",
    "the server still answers after all of this",
    fix="see the log of the server",
    page={HANDSHAKE: "basic/lifecycle", STATELESS: "basic"},
)
async def end(case: Case) -> Verdict:
    """Ask once more."""
    try:
        answer = await case.talk.request("ping" if case.era == HANDSHAKE else "server/discover")
    except NoAnswer as reason:
        return broken(str(reason))
    if answer.result is None:
        return broken(f"it answered with {answer.told}")
    return passed()
