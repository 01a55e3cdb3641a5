"""One request for an authorization code, and the judgement of its answer (RFC 6749 §4.1, RFC 7636, RFC 9207).

Rule 1: what is needed to judge an answer is fixed before the browser is opened: state, verifier, issuer.
Rule 2: an answer with another state is nobody's; one with another issuer is not acted on, nor is any of it shown.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from ferrule.auth.client.metadata import S256, ServerMetadata
from ferrule.auth.client.token import ClientIdentity
from ferrule.errors import AuthorizationFailed, SetupError, quoted

LONGEST_ANSWER = 8 * 1024
MOST_PARAMETERS = 50
OURS = frozenset(
    {"response_type", "client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method", "resource"}
)
"""Parameters that only we set."""


class CodeRequest(Struct, frozen=True):
    """What an answer is judged by; its text shows no secret."""

    url: str
    """Where the person is sent."""
    issuer: str
    state: str
    verifier: str
    redirect_uri: str
    says_issuer: bool
    """Whether the authorization server says that its answers name it."""

    def __repr__(self) -> str:
        return f"CodeRequest({self.issuer})"

    def is_answered_by(self, answer: str) -> bool:
        """Return whether an answer is for this request: only then does it mean anything."""
        states = [value for name, value in _parameters(answer) if name == "state"]
        return len(states) == 1 and hmac.compare_digest(states[0].encode(), self.state.encode())

    def code(self, answer: str) -> str:
        """Return the code an answer brings: a whole URL, or its query. Raises AuthorizationFailed."""
        if not self.is_answered_by(answer):
            raise AuthorizationFailed(
                f"the answer does not belong to this login at {self.issuer}: its state is another one; log in again"
            )
        found = _parameters(answer)
        said = dict(found)
        if len(said) != len(found):
            raise AuthorizationFailed(f"the answer of {self.issuer} says something twice, and is not used")
        self._judge_issuer(said)
        if "error" in said:
            raise AuthorizationFailed(f"{self.issuer} did not allow it: {_told(said)}")
        if not said.get("code"):
            raise AuthorizationFailed(f"the answer of {self.issuer} has neither a code nor an error")
        return said["code"]

    def _judge_issuer(self, said: Mapping[str, str]) -> None:
        """MCP authorization, "Authorization Response Validation": compared as text, nothing normalised."""
        if "iss" in said:
            if said["iss"] != self.issuer:
                raise AuthorizationFailed(f"the answer is not from {self.issuer}, which was asked; it is not used")
        elif self.says_issuer:
            raise AuthorizationFailed(f"the answer does not say that it is from {self.issuer}, which it would say")


def make_code_request(
    server: ServerMetadata,
    client: ClientIdentity,
    redirect_uri: str,
    resource: str,
    scopes: Sequence[str],
    extra: Mapping[str, str],
) -> CodeRequest:
    """Return a request for a code; `resource` may be empty."""
    if not OURS.isdisjoint(extra):
        raise SetupError(f"extra: {min(OURS & extra.keys())} is not for you to set")
    endpoint = server.authorization_endpoint
    if not endpoint:
        raise AuthorizationFailed(f"{server.issuer} has no authorization endpoint: nobody can log in there")
    verifier = secrets.token_urlsafe(48)
    state = secrets.token_urlsafe(32)
    digest = sha256(verifier.encode()).digest()
    said = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": S256,
    }
    if scopes:
        said["scope"] = " ".join(scopes)
    if resource:
        said["resource"] = resource
    said.update(extra)
    joint = "&" if urlsplit(endpoint).query else "?"
    return CodeRequest(
        f"{endpoint}{joint}{urlencode(said)}",
        server.issuer,
        state,
        verifier,
        redirect_uri,
        server.authorization_response_iss_parameter_supported,
    )


def _parameters(answer: str) -> list[tuple[str, str]]:
    """Return the parameters of an answer: of a whole URL, or of a query alone."""
    text = answer.strip()
    if len(text) > LONGEST_ANSWER:
        return []
    if "://" in text.partition("=")[0]:
        text = urlsplit(text).query
    try:
        return parse_qsl(text.lstrip("?"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        return []


def _told(said: Mapping[str, str]) -> str:
    words = []
    for name in ("error", "error_description"):
        if said.get(name, "").isprintable() and said.get(name):
            words.append(quoted(said[name]))
    return ", ".join(words) or "it gives no reason"
