"""Rules of resources and their templates."""

from __future__ import annotations

from ferrule.check.answer import shown
from ferrule.check.case import MOST_CALLS, Case
from ferrule.check.era import HANDSHAKE, STATELESS
from ferrule.check.rule import Verdict, broken, judged, passed, rule, skipped
from ferrule.check.rules.content import contents_fault, is_absolute, is_template
from ferrule.check.wire import NoAnswer
from ferrule.codes import ErrorCode

PAGE = "server/resources"
NO_RESOURCE = "ferrule-check://no/such/resource"


@rule(
    "resources/list-shape",
    "every resource has a name and an absolute URI",
    fix='give every resource a "name" and a "uri" with a scheme, as RFC 3986 has it',
    page=PAGE,
    capability="resources",
)
async def list_shape(case: Case) -> Verdict:
    """Look at every resource."""
    listing = await case.listing("resources/list")
    faults = []
    for resource in listing.items:
        if not isinstance(resource, dict) or not isinstance(resource.get("name"), str):
            faults.append(f"a resource without a name: {shown(resource)}")
        elif not is_absolute(resource.get("uri")):
            faults.append(f"{shown(resource.get('uri'))} is no absolute URI")
    return judged(faults, f"{len(listing.items)} resources")


@rule(
    "resources/templates-shape",
    "every resource template has a name and a URI template of RFC 6570",
    fix='give every template a "name" and a "uriTemplate" such as notes://{id}',
    page=PAGE,
    capability="resources",
)
async def templates_shape(case: Case) -> Verdict:
    """Look at every template."""
    listing = await case.listing("resources/templates/list")
    first = listing.answers[0]
    if first.code == ErrorCode.METHOD_NOT_FOUND:
        return skipped("the server knows no templates")
    if first.result is None:
        return broken(f"resources/templates/list was answered with {first.told}")
    faults = []
    for template in listing.items:
        if not isinstance(template, dict) or not isinstance(template.get("name"), str):
            faults.append(f"a template without a name: {shown(template)}")
        elif not is_template(template.get("uriTemplate")):
            faults.append(f"{shown(template.get('uriTemplate'))} is no URI template")
    return judged(faults, f"{len(listing.items)} templates")


@rule(
    "resources/unknown",
    "a resource that does not exist is refused with the code of its version",
    fix="answer with -32602 in the stateless versions and with -32002 before, never with an empty list",
    page=PAGE,
    level={HANDSHAKE: "should", STATELESS: "must"},
    capability="resources",
)
async def unknown(case: Case) -> Verdict:
    """Read a resource nobody has."""
    wanted = ErrorCode.RESOURCE_NOT_FOUND if case.era == HANDSHAKE else ErrorCode.INVALID_PARAMS
    answer = await case.talk.request("resources/read", {"uri": NO_RESOURCE})
    if answer.code == wanted:
        return passed()
    if answer.result is not None and answer.result.get("contents"):
        return skipped("the server has something at every URI")
    return broken(f"the read of {NO_RESOURCE} was answered with {answer.told}")


@rule(
    "resources/read",
    "a resource that is listed can be read, and has text or base64 in it",
    fix='answer with "contents": […], each with its uri and with text or blob',
    page=PAGE,
    capability="resources",
)
async def read(case: Case) -> Verdict:
    """Read the first resources."""
    resources = (await case.listing("resources/list")).objects[:MOST_CALLS]
    if not resources:
        return skipped("no resource is listed")
    faults = []
    refused = ""
    for resource in resources:
        uri = resource.get("uri")
        try:
            answer = await case.talk.request("resources/read", {"uri": uri})
        except NoAnswer:
            # A slow resource says nothing about the protocol.
            await case.reopen()
            continue
        result = answer.result
        if result is None:
            refused = f"{shown(uri)} is listed, and its read was answered with {answer.told}"
        elif result.get("resultType", "complete") != "complete":
            continue
        elif not isinstance(result.get("contents"), list):
            faults.append(f"{shown(uri)}: contents is {shown(result.get('contents'))}")
        else:
            faults.extend(filter(None, map(contents_fault, result["contents"])))
    if refused and not faults:
        # What is listed may be out of reach for a while, or for this caller.
        return skipped(refused)
    return judged(faults, f"{len(resources)} read")


@rule(
    "resources/subscribe",
    "a server that declares subscriptions takes them",
    fix="answer resources/subscribe and resources/unsubscribe with {}, or do not declare resources.subscribe",
    page=PAGE,
    eras=(HANDSHAKE,),
    capability="resources",
)
async def subscribe(case: Case) -> Verdict:
    """Subscribe to the first resource, and unsubscribe."""
    parts = case.talk.capabilities.get("resources")
    if not isinstance(parts, dict) or parts.get("subscribe") is not True:
        return skipped("the server does not declare resources.subscribe")
    resources = (await case.listing("resources/list")).objects
    if not resources:
        return skipped("no resource is listed")
    faults = []
    for method in ("resources/subscribe", "resources/unsubscribe"):
        answer = await case.talk.request(method, {"uri": resources[0].get("uri")})
        if answer.result is None:
            faults.append(f"{method} was answered with {answer.told}")
    return judged(faults)
