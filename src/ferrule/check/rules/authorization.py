"""Rules of a server that lets in only who has a token: how it says where to get one."""

from __future__ import annotations

from ferrule.auth.challenge import read_challenges
from ferrule.check.answer import Answer
from ferrule.check.case import Case
from ferrule.check.era import HANDSHAKE, STATELESS
from ferrule.check.http import HttpWire, is_any
from ferrule.check.rule import Verdict, broken, doubtful, judged, passed, rule
from ferrule.errors import SetupError

PAGE = {HANDSHAKE: "basic/authorization", STATELESS: "basic/authorization"}
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def _named_metadata(refusal: Answer) -> str:
    """Return where a challenge says the metadata is; empty where it does not."""
    for challenge in read_challenges(refusal.headers.get("www-authenticate", "")):
        if challenge.is_scheme("bearer") or challenge.is_scheme("dpop"):
            return challenge.parameters.get("resource_metadata", "")
    return ""


async def _metadata(case: Case, refusal: Answer) -> tuple[str, Answer]:
    """Return where the metadata of a server is and what is there: where the challenge says, or at the known places."""
    wire = case.talk.wire
    assert isinstance(wire, HttpWire)
    path = wire.place.target.partition("?")[0].rstrip("/")
    places = [f"{WELL_KNOWN}{path}", WELL_KNOWN]
    if named := _named_metadata(refusal):
        places = [named]
    url = ""
    answer = Answer()
    for place in places:
        try:
            there = wire.place.resolve(place)
        except SetupError as reason:
            return place, Answer(body=str(reason).encode())
        url = there.url
        answer = await HttpWire(url, {}).ask("GET", {"Accept": "application/json"}, b"", is_any, case.seconds)
        if answer.status == 200:
            break
    return url, answer


@rule(
    "authorization/challenge",
    "a request without a token is answered with 401 and a challenge",
    fix='answer 401 with WWW-Authenticate: Bearer resource_metadata="…"',
    page=PAGE,
    level="should",
    kinds=("http",),
)
async def challenge(case: Case) -> Verdict:
    """Look at the challenge."""
    header = case.refusal.headers.get("www-authenticate", "")
    if not header:
        return broken("HTTP 401 came without WWW-Authenticate")
    if not _named_metadata(case.refusal):
        return doubtful(f"the challenge names no resource_metadata: {header[:200]}")
    return passed()


@rule(
    "authorization/metadata",
    "the server says which authorization servers it trusts",
    fix="serve the protected resource metadata of RFC 9728, with resource and authorization_servers",
    page=PAGE,
    kinds=("http",),
)
async def metadata(case: Case) -> Verdict:
    """Fetch the metadata."""
    url, answer = await _metadata(case, case.refusal)
    if answer.status != 200 or not answer.message:
        return broken(f"{url} was answered with {answer.told}")
    faults = []
    if not isinstance(answer.message.get("resource"), str):
        faults.append(f"{url} names no resource")
    servers = answer.message.get("authorization_servers")
    if not isinstance(servers, list) or not servers:
        faults.append(f"{url} names no authorization_servers")
    return judged(faults, url)
