"""One request for a code, and the judgement of its answer."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ferrule import AuthorizationFailed, SetupError
from ferrule.auth.client.code_request import CodeRequest, make_code_request
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.token import ClientIdentity

ISSUER = "https://as.example"
REDIRECT = "http://127.0.0.1:1234/callback"


def request(*, says_issuer: bool = False, endpoint: str = f"{ISSUER}/authorize", **options: Any) -> CodeRequest:
    """Return a request."""
    server = ServerMetadata(
        ISSUER, authorization_endpoint=endpoint, authorization_response_iss_parameter_supported=says_issuer
    )
    said: dict[str, Any] = {"resource": "https://a.example/mcp", "scopes": ["a", "b"], "extra": {}, **options}
    return make_code_request(server, ClientIdentity("app"), REDIRECT, said["resource"], said["scopes"], said["extra"])


def test_the_request_says_what_it_must() -> None:
    """ACLI-6, ACLI-7, ACLI-10"""
    made = request()
    said = {name: values[0] for name, values in parse_qs(urlsplit(made.url).query).items()}
    digest = urlsafe_b64encode(sha256(made.verifier.encode()).digest()).rstrip(b"=").decode()
    assert said == {
        "response_type": "code",
        "client_id": "app",
        "redirect_uri": REDIRECT,
        "state": made.state,
        "code_challenge": digest,
        "code_challenge_method": "S256",
        "scope": "a b",
        "resource": "https://a.example/mcp",
    }
    assert len(made.verifier) == 64
    assert request().state != made.state
    assert made.verifier not in made.url + repr(made)


def test_what_is_not_asked_for_is_not_said() -> None:
    said = parse_qs(urlsplit(request(scopes=[], resource="").url).query)
    assert "scope" not in said
    assert "resource" not in said


def test_an_endpoint_with_a_query_keeps_it() -> None:
    assert request(endpoint=f"{ISSUER}/authorize?tenant=x").url.startswith(
        f"{ISSUER}/authorize?tenant=x&response_type="
    )


@pytest.mark.parametrize("name", ["state", "redirect_uri", "code_challenge", "client_id", "resource"])
def test_nobody_else_sets_what_protects_the_login(name: str) -> None:
    with pytest.raises(SetupError, match=f"{name} is not for you to set"):
        request(extra={name: "x"})


def test_a_code_is_taken_from_a_url_or_a_query() -> None:
    made = request()
    query = f"code=abc&state={made.state}"
    for answer in (f"{REDIRECT}?{query}", query, f"?{query}", f"  {query}\n", f"state={made.state}&code=abc"):
        assert made.code(answer) == "abc"


@pytest.mark.parametrize(
    "answer",
    [
        "code=abc",
        "code=abc&state=",
        "code=abc&state=other",
        "code=abc&state={state}x",
        "code=abc&state={state}&state={state}",
        "code=abc&STATE={state}",
        "error=access_denied&error_description=visit+evil.example",
        "state={state}" + "&x=1" * 100,
        "code=abc&state={state}&pad=" + "x" * 9000,
        "",
    ],
)
def test_an_answer_with_another_state_is_nobodys(answer: str) -> None:
    """ACLI-10, AUT-08: and nothing of it is shown."""
    made = request()
    told = answer.format(state=made.state)
    assert not made.is_answered_by(told)
    with pytest.raises(AuthorizationFailed, match="its state is another one") as refused:
        made.code(told)
    assert "evil" not in str(refused.value)


@pytest.mark.parametrize(
    ("says_issuer", "iss", "good"),
    [
        (True, ISSUER, True),
        (False, ISSUER, True),
        (False, None, True),
        (True, None, False),
        (True, "https://evil.example", False),
        (False, "https://evil.example", False),
        (True, f"{ISSUER}/", False),
        (True, ISSUER.upper(), False),
        (True, "", False),
    ],
)
@pytest.mark.parametrize("outcome", ["code=abc", "error=access_denied&error_description=go+to+evil"])
def test_an_answer_names_its_issuer_exactly(says_issuer: bool, iss: str | None, good: bool, outcome: str) -> None:
    """ACLI-11, AUT-08: errors too; of one with another issuer nothing is shown."""
    made = request(says_issuer=says_issuer)
    answer = f"{outcome}&state={made.state}" + ("" if iss is None else f"&iss={iss}")
    if good and outcome == "code=abc":
        assert made.code(answer) == "abc"
        return
    with pytest.raises(AuthorizationFailed) as refused:
        made.code(answer)
    assert ("access_denied" in str(refused.value)) == good


@pytest.mark.parametrize("doubled", ["code=a&code=b", "code=a&iss=https://as.example&iss=https://as.example"])
def test_an_answer_that_says_something_twice_is_refused(doubled: str) -> None:
    """AUT-08: a code that somebody added."""
    made = request()
    with pytest.raises(AuthorizationFailed, match="says something twice"):
        made.code(f"{doubled}&state={made.state}")


def test_what_an_error_says_is_shown_only_where_it_can_be() -> None:
    made = request()
    with pytest.raises(AuthorizationFailed) as refused:
        made.code(f"error=denied&error_description=%1b[31mred&state={made.state}")
    assert str(refused.value) == f"{ISSUER} did not allow it: denied"
