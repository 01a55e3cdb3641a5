"""Rules of the versions in which every request speaks for itself."""

from __future__ import annotations

from typing import Any

from ferrule.check.answer import Answer, Json, shown
from ferrule.check.case import Case
from ferrule.check.era import STATELESS
from ferrule.check.rule import Verdict, broken, judged, passed, rule, skipped
from ferrule.check.rules.lifecycle import DECLARED, UNKNOWN_VERSION, capability_faults, identity_faults
from ferrule.check.talk import META
from ferrule.codes import ErrorCode

ONLY = (STATELESS,)
REMOVED = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""Methods that only older versions have, beside initialize: what a refusal of that looks like is up to the server."""


async def with_meta(case: Case, changes: dict[str, Any], method: str = "server/discover") -> Answer:
    """Send a request with some of its metadata changed, or left out where None; the headers follow."""
    message, headers = case.talk.envelope(method)
    meta: Json = message["params"]["_meta"]
    for name, value in changes.items():
        meta.pop(f"{META}{name}", None)
        if value is not None:
            meta[f"{META}{name}"] = value
    if isinstance(changes.get("protocolVersion"), str):
        headers["MCP-Protocol-Version"] = changes["protocolVersion"]
    message["id"] = case.talk.new_id()
    return await case.talk.send(message, headers)


def refusal_faults(answer: Answer, code: int, what: str) -> list[str]:
    """Return what is wrong with a refusal: over HTTP its status is 400."""
    if answer.code == code and answer.status in (0, 400):
        return []
    return [f"{what} was answered with {answer.told}"]


@rule(
    "stateless/discover",
    "server/discover names versions, capabilities and how long they hold",
    fix="answer with supportedVersions, capabilities, ttlMs and cacheScope",
    page="server/discover",
    eras=ONLY,
)
async def discover(case: Case) -> Verdict:
    """Look at the result of server/discover."""
    result = case.talk.opening
    faults = capability_faults(result.get("capabilities"))
    for version in result.get("supportedVersions", []):
        if not isinstance(version, str):
            faults.append(f"supportedVersions holds {shown(version)}")
    return judged(faults, f"{', '.join(map(str, result.get('supportedVersions', [])))}")


@rule(
    "stateless/server-info",
    "results name the server in their `_meta`",
    fix=f'put "{META}serverInfo" with name and version into the _meta of results',
    page="basic",
    level="should",
    eras=ONLY,
)
async def results_name_server(case: Case) -> Verdict:
    """Look at the result of server/discover."""
    meta = case.talk.opening.get("_meta")
    if not isinstance(meta, dict) or f"{META}serverInfo" not in meta:
        return broken(f"the result of server/discover has the _meta {shown(meta)}")
    return judged(identity_faults(meta[f"{META}serverInfo"], "serverInfo"))


@rule(
    "stateless/result-type",
    "every result says of which kind it is",
    fix='write "resultType": "complete" into every result',
    page="basic",
    eras=ONLY,
)
async def result_type(case: Case) -> Verdict:
    """Look at every result of the conversation."""
    faults = []
    for message in case.talk.responses:
        result = message.get("result")
        if isinstance(result, dict) and not isinstance(result.get("resultType"), str):
            faults.append(shown(message))
    return judged(faults)


@rule(
    "stateless/cache-hints",
    "lists say how long they hold and for whom",
    fix='write "ttlMs" (0 or more) and "cacheScope" ("public" or "private") into the results of lists and reads',
    page="server/utilities/caching",
    eras=ONLY,
)
async def cache_hints(case: Case) -> Verdict:
    """Look at the results of server/discover and of every list."""
    looked: list[tuple[str, Json]] = [("server/discover", case.talk.opening)]
    for method, capability in DECLARED.items():
        if capability not in case.talk.capabilities:
            continue
        for answer in (await case.listing(method)).answers:
            if answer.result is not None:
                looked.append((method, answer.result))
    faults = []
    for method, result in looked:
        ttl = result.get("ttlMs")
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl < 0:
            faults.append(f"{method}: ttlMs is {shown(ttl)}")
        if result.get("cacheScope") not in ("public", "private"):
            faults.append(f"{method}: cacheScope is {shown(result.get('cacheScope'))}")
    return judged(faults)


@rule(
    "stateless/unsupported-version",
    "a version the server does not know is refused with -32022, and those it knows are named",
    fix='answer with the error -32022 and data {"supported": […], "requested": …}; over HTTP with status 400',
    page="basic/versioning",
    eras=ONLY,
)
async def unsupported_version(case: Case) -> Verdict:
    """Ask in a version of another century: for a list, since some answer server/discover in any version."""
    method = "server/discover"
    for each, capability in DECLARED.items():
        if capability in case.talk.capabilities:
            method = each
    answer = await with_meta(case, {"protocolVersion": UNKNOWN_VERSION}, method)
    faults = refusal_faults(answer, ErrorCode.UNSUPPORTED_VERSION, f"{method} in the version {UNKNOWN_VERSION}")
    if faults:
        return judged(faults)
    data = (answer.error or {}).get("data")
    if not isinstance(data, dict) or not isinstance(data.get("supported"), list) or not data["supported"]:
        return broken(f"the error does not name the versions the server knows: {answer.told}")
    if data.get("requested") != UNKNOWN_VERSION:
        return broken(f"the error does not name the version that was asked for: {answer.told}")
    return passed()


@rule(
    "stateless/missing-metadata",
    "a request without its capabilities is refused with -32602",
    fix="answer a request without clientCapabilities in its _meta with the error -32602; over HTTP with status 400",
    page="basic",
    eras=ONLY,
)
async def missing_metadata(case: Case) -> Verdict:
    """Leave the capabilities out."""
    answer = await with_meta(case, {"clientCapabilities": None})
    return judged(refusal_faults(answer, ErrorCode.INVALID_PARAMS, "server/discover without clientCapabilities"))


@rule(
    "stateless/client-info-optional",
    "a request that does not name its client is served",
    fix="do not require clientInfo in _meta",
    page="basic",
    eras=ONLY,
)
async def anonymous_client(case: Case) -> Verdict:
    """Leave the name of the client out."""
    answer = await with_meta(case, {"clientInfo": None})
    if answer.result is None:
        return broken(f"server/discover without clientInfo was answered with {answer.told}")
    return passed()


@rule(
    "stateless/removed-methods",
    "methods that only older versions have are refused with -32601",
    fix="answer ping, logging/setLevel and resources/subscribe with the error -32601 (over HTTP 404)",
    page="basic/versioning",
    level="should",
    eras=ONLY,
)
async def removed_methods(case: Case) -> Verdict:
    """Send what older versions know, with the metadata of the new ones."""
    faults = []
    for method in REMOVED:
        params: Json = {}
        if method == "logging/setLevel":
            params = {"level": "warning"}
        elif method.startswith("resources/"):
            params = {"uri": "ferrule-check://nothing"}
        answer = await case.talk.request(method, params)
        if answer.code != ErrorCode.METHOD_NOT_FOUND:
            faults.append(f"{method} was answered with {answer.told}")
    return judged(faults)


@rule(
    "stateless/versions-agree",
    "the versions of a refusal are among those of server/discover",
    fix="name the same versions in supportedVersions and in the error -32022",
    page="basic/versioning",
    level="should",
    eras=ONLY,
)
async def versions_agree(case: Case) -> Verdict:
    """Compare the two lists."""
    answer = await with_meta(case, {"protocolVersion": UNKNOWN_VERSION})
    data = (answer.error or {}).get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    if not isinstance(supported, list):
        return skipped("the refusal names no versions")
    known = case.talk.opening.get("supportedVersions", [])
    faults = []
    for version in supported:
        if version not in known:
            faults.append(f"{shown(version)} is in the refusal, and not in {shown(known)}")
    return judged(faults)
