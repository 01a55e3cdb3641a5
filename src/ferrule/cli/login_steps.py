"""Each step of finding out how to log in to a server, what is wrong with it, and the fix: `ferrule doctor auth URL`."""

from __future__ import annotations

import argparse

from ferrule.auth.challenge import Challenge, read_challenges
from ferrule.auth.client.discovery import Discovered, Step
from ferrule.auth.client.oauth import OAuth
from ferrule.client.client import Client
from ferrule.errors import AuthorizationFailed, FerruleError
from ferrule.transports.contract import Authorization, Credentials, Refused


def told(step: Step) -> str:
    """Return a step as lines for people."""
    mark = "ok  " if step.ok else "FAIL"
    line = f"{mark}  {step.what}: {step.found}  ({step.url})"
    if step.fix:
        line += f"\n      {step.fix}"
    return line


class Witness:
    """Shows a server nothing, and notes how it refuses."""

    def __init__(self) -> None:
        self.refusal: Refused | None = None

    def credentials(self, url: str, tls: object) -> Credentials:
        """Return itself: there is one server."""
        return self

    def authorize(self, method: str, url: str) -> Authorization:
        """Show nothing."""
        return Authorization()

    async def prepare(self) -> None:
        """Do nothing."""

    async def refused(self, refusal: Refused) -> bool:
        """Note the first refusal."""
        self.refusal = self.refusal or refusal
        return False


async def look(options: argparse.Namespace) -> list[Step]:
    """Look at every step."""
    witness = Witness()
    try:
        async with Client(options.url, auth=witness, reconnect=False):
            pass
        return [Step("server", options.url, "it lets in anybody: there is nothing to log in to")]
    except FerruleError as failure:
        if witness.refusal is None:
            return [Step("server", options.url, str(failure), ok=False, fix="see that it runs, and can be reached")]
    challenge, steps = _challenged(options.url, witness.refusal)
    auth = OAuth(storage="memory", issuer=options.issuer, allow_private=options.allow_private)
    looking = auth.discovery(options.url)
    try:
        found = await looking.find(challenge)
    except AuthorizationFailed:
        # Its last step says what this says.
        return [*steps, *looking.steps]
    return [*steps, *looking.steps, *_abilities(found)]


def _challenged(url: str, refusal: Refused) -> tuple[Challenge | None, list[Step]]:
    """Return the challenge of a server, and what is to be said of it."""
    header = refusal.headers.get("www-authenticate", "")
    for challenge in read_challenges(header):
        if challenge.is_scheme("bearer") or challenge.is_scheme("dpop"):
            named = challenge.parameters.get("resource_metadata")
            found = f"HTTP {refusal.status}, {challenge.scheme}"
            found += f", metadata at {named}" if named else ", without resource_metadata"
            return challenge, [Step("challenge", url, found)]
    fix = 'answer 401 with WWW-Authenticate: Bearer resource_metadata="…"'
    found = f"HTTP {refusal.status} without a challenge for a token"
    return None, [Step("challenge", url, found, ok=refusal.status == 401 and not header, fix=fix)]


def _abilities(found: Discovered) -> list[Step]:
    """Return what an authorization server can do of what clients need."""
    server = found.server
    issuer = found.issuer
    steps = []
    endpoints = {"authorization endpoint": server.authorization_endpoint, "token endpoint": server.token_endpoint}
    for what, url in endpoints.items():
        if url:
            steps.append(Step(what, url, "named"))
        else:
            steps.append(Step(what, issuer, "it names none", ok=False, fix="let its metadata name one"))
    steps.append(_registration(found))
    says_issuer = "its answers name it" if server.authorization_response_iss_parameter_supported else "not said"
    steps.append(Step("iss in answers", issuer, says_issuer))
    scopes = " ".join(found.scopes) or "the server names none"
    steps.append(Step("scopes", found.resource, scopes))
    return steps


def _registration(found: Discovered) -> Step:
    server = found.server
    ways = []
    if server.client_id_metadata_document_supported:
        ways.append("client metadata documents")
    if server.registration_endpoint:
        ways.append("dynamic registration")
    if ways:
        return Step("registration", found.issuer, " and ".join(ways))
    fix = "register a client by hand, and log in with --client-id"
    return Step("registration", found.issuer, "only by hand", fix=fix)
