"""Principals: which of them are the same, and what stands for each."""

from __future__ import annotations

import pytest

from ferrule import ANONYMOUS, Principal, RequestFacts, SetupError
from ferrule.identity.principal import CERTIFICATE
from ferrule.identity.verifier import ALLOW_ALL, Certificate

TOKEN = Principal(issuer="https://login.example.com", subject="ada", client="editor")


def certificate(name: str) -> Certificate:
    return Certificate({"subject": ((("organizationName", "x"),), (("commonName", name),))}, b"der")


def test_a_key_names_issuer_and_subject() -> None:
    assert TOKEN.key == str(TOKEN) == "https://login.example.com#ada"
    assert Principal(issuer="https://login.example.com", client="robot").key == "https://login.example.com##robot"


def test_a_certificates_ada_is_not_a_tokens_ada() -> None:
    certified = ALLOW_ALL.verify(RequestFacts(transport="tcp", certificate=certificate("ada")))
    assert isinstance(certified, Principal)
    assert certified.issuer == CERTIFICATE
    assert certified.key == "ada"
    assert certified.key != TOKEN.key
    assert certified.binding != TOKEN.binding


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Principal(issuer="a#b", subject="c"), Principal(issuer="a", subject="b#c")),
        (Principal(issuer="a", subject="#c"), Principal(issuer="a", client="c")),
        (Principal(issuer="a", subject="b%23c"), Principal(issuer="a", subject="b#c")),
        (Principal(issuer=CERTIFICATE, subject="a#b"), Principal(issuer="a", subject="b")),
        (Principal(issuer="a", subject="b"), Principal(issuer="A", subject="b")),
    ],
)
def test_two_principals_never_share_a_key(one: Principal, other: Principal) -> None:
    assert one.key != other.key
    assert one.binding != other.binding


def test_a_session_is_bound_to_the_client_too_and_what_is_kept_is_not() -> None:
    other = Principal(issuer=TOKEN.issuer, subject="ada", client="browser")
    assert other.key == TOKEN.key
    assert other.binding != TOKEN.binding
    assert Principal(issuer="a", subject="b", client="c").binding != Principal(issuer="a", subject="b#c").binding


def test_it_expires_at_its_time() -> None:
    lasting, ending = TOKEN, Principal(issuer="a", subject="b", expires=100.0)
    assert not lasting.expired(1e12)
    assert [ending.expired(now) for now in (99.9, 100.0)] == [False, True]


def test_its_claims_are_not_in_its_text() -> None:
    told = Principal(issuer="a", subject="b", claims={"email": "ada@example.com"})
    assert "example" not in repr(told) + str(told)


@pytest.mark.parametrize(
    "wrong",
    [{"issuer": "", "subject": "b"}, {"issuer": "a"}, {"issuer": "a", "subject": "b", "scopes": "read write"}],
)
def test_one_that_names_nobody_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="Principal: "):
        Principal(**wrong)  # type: ignore[arg-type]


def test_by_default_everybody_is_let_in_as_nobody() -> None:
    assert ALLOW_ALL.verify(RequestFacts(transport="http")) is ANONYMOUS
    assert ALLOW_ALL.verify(RequestFacts(transport="tcp", certificate=Certificate({}))) is ANONYMOUS
