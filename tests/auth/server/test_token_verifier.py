"""What every verifier of tokens does: headers, caches, the limit of bad tokens, bound tokens, scopes."""

from __future__ import annotations

import asyncio
import inspect
import logging
import statistics
import time
import tracemalloc
from hashlib import sha256
from typing import Any

import pytest
from forgery import base64url
from issuer_double import KEYS, METADATA, NOW, RESOURCE, Clock, facts, judged, let_in, token, verifier
from msgspec import structs

from ferrule.auth.challenge import read_challenges
from ferrule.auth.dpop import make_proof
from ferrule.auth.jose import BadToken, make_key
from ferrule.auth.server import token_verifier
from ferrule.auth.server.certificates import ClientCertificates
from ferrule.auth.server.static_tokens import StaticTokens
from ferrule.auth.server.token_cache import KnownToken
from ferrule.auth.server.token_verifier import HOLD, MOST_HELD
from ferrule.errors import Busy, Refusal, SetupError
from ferrule.identity.principal import CERTIFICATE, Principal
from ferrule.identity.verifier import Certificate
from ferrule.stores.stores import Stores
from ferrule.testing import run_in_virtual_time

ADA = Principal(issuer="dev", subject="ada", scopes=frozenset({"notes"}))
TOKENS = {"dev-token": ADA, "other.token~": Principal(issuer="dev", client="robot")}


def refused(verdict: object) -> Refusal:
    assert isinstance(verdict, Refusal), verdict
    return verdict


def challenge_of(verdict: object) -> dict[str, str]:
    (found,) = read_challenges(refused(verdict).headers["WWW-Authenticate"])
    return {"scheme": found.scheme, **found.parameters}


# -- the header


@pytest.mark.parametrize("header", [None, "", "Basic YTpi", "Digest x=y", "bearertoken", "Negotiate abc"])
def test_without_a_token_a_caller_is_told_how_to_get_one_and_no_error(header: str | None) -> None:
    """AUT-01, AUTH-1, AUTH-2, AUTH-4: RFC 6750 §3.1."""
    answer = verifier(scopes=["notes"]).verify(facts(header))
    assert refused(answer).status == 401
    assert challenge_of(answer) == {"scheme": "Bearer", "scope": "notes", "resource_metadata": METADATA}


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer a b",
        "Bearer a, Bearer b",
        "Bearer a,Bearer a",
        "Bearer a\0b",
        "Bearer é",
        "Bearer " + "a" * 9000,
        "Bearer a;b",
        'Bearer "a"',
        "DPoP a, b",
    ],
    ids=range(11),
)
def test_a_malformed_header_is_a_bad_request(header: str) -> None:
    """AUT-01, AUTH-6."""
    answer = verifier().verify(facts(header))
    assert refused(answer).status == 400
    assert challenge_of(answer)["error"] == "invalid_request"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_case_of_the_scheme_does_not_matter(scheme: str) -> None:
    let_in(token(), scheme=scheme)


@pytest.mark.parametrize("query", ["?access_token=x", "?a=b&access_token=x", "?ACCESS_TOKEN=x"])
@pytest.mark.parametrize("header", [None, f"Bearer {token()}"], ids=["alone", "beside a header"])
def test_a_token_in_the_url_is_refused_even_beside_a_good_one(query: str, header: str | None) -> None:
    """AUTH-9."""
    answer = verifier().verify(facts(header, url=RESOURCE + query))
    assert refused(answer).status == 400


def test_a_cookie_proves_nothing() -> None:
    assert refused(verifier().verify(facts(headers={"cookie": f"access_token={token()}"}))).status == 401


def test_a_token_that_was_read_for_one_resource_is_judged_anew_for_another() -> None:
    """AUT-03: a verifier around ours may ask about two endpoints with the notes of one request."""
    by = verifier(resource=None)
    shown = f"Bearer {token(aud='http://127.0.0.1:8000/mcp')}"
    here = facts(shown, url="http://127.0.0.1:8000/mcp", headers={"host": "127.0.0.1:8000"})
    assert isinstance(by.verify(here), Principal)
    assert refused(by.verify(structs.replace(here, endpoint="/admin/mcp"))).status == 401
    assert refused(by.verify(structs.replace(here, url="http://127.0.0.1:8000/mcp?access_token=x"))).status == 400


# -- caches


def test_a_token_is_checked_once_and_again_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    by = verifier(clock=clock)
    checks: list[str] = []
    check = by.check
    monkeypatch.setattr(by, "check", lambda shown, *rest: checks.append(shown) or check(shown, *rest))
    shown = token(exp=int(NOW) + 1000)
    first = let_in(shown, by)
    assert let_in(shown, by) is first
    assert len(checks) == 1
    clock.now += 301
    let_in(shown, by)
    assert len(checks) == 2
    clock.now = NOW + 1061
    assert refused(judged(shown, by)).status == 401


def test_a_token_that_expires_is_refused_though_it_is_known() -> None:
    """AUTH-1: a verdict is never kept beyond the token."""
    clock = Clock()
    by = verifier(clock=clock)
    shown = token(exp=int(NOW) + 10)
    let_in(shown, by)
    clock.now += 69.9
    let_in(shown, by)
    clock.now += 0.2
    assert challenge_of(judged(shown, by))["error"] == "invalid_token"


def test_a_token_that_is_checked_each_time_is_not_kept() -> None:
    by = verifier()
    by.keep_good = 0.0
    let_in(token(), by)
    let_in(token(), by)
    assert len(by.cache) == 0


def test_a_bad_token_is_refused_without_another_look_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    by = verifier(clock=clock)
    checks: list[str] = []
    check = by.check
    monkeypatch.setattr(by, "check", lambda shown, *rest: checks.append(shown) or check(shown, *rest))
    shown = token(aud="https://other.example")
    answers = [refused(judged(shown, by)).message for _ in range(50)]
    assert (len(checks), len(set(answers))) == (1, 1)
    clock.now += 6
    judged(shown, by)
    assert len(checks) == 2


def test_what_is_kept_is_bounded() -> None:
    by = StaticTokens({f"t{n}": ADA for n in range(10)}, resource=RESOURCE, clock=Clock())
    known = KnownToken(ADA, NOW + 300)
    tracemalloc.start()
    for number in range(12_000):
        by.cache.keep(number.to_bytes(32, "big"), known)
        by.cache.keep_bad(number.to_bytes(32, "little"), "no", NOW)
        by.failures.count(f"192.0.2.{number}", NOW)
    assert len(by.cache) == 10_000
    assert len(by.cache._bad) == 1_000
    assert len(by.failures._left) == 10_000
    assert tracemalloc.get_traced_memory()[0] < 10_000_000
    tracemalloc.stop()


def test_whoever_shows_many_bad_tokens_is_told_to_wait_and_nobody_else() -> None:
    """AUT-13: a signature costs more to check than to send."""
    clock = Clock()
    by = verifier(clock=clock)
    good = token()
    let_in(good, by)

    async def status(shown: str) -> int | None:
        verdict: Any = judged(shown, by)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        return refused(verdict).status

    async def play() -> None:
        statuses = [await status(token(key=KEYS["ES256"], jti=str(n), aud="x")) for n in range(40)]
        assert statuses == [401] * 20 + [429] * 20
        let_in(good, by)
        let_in(token(jti="fresh"), by, address="198.51.100.1")
        clock.now += 0.5
        statuses = [await status(token(jti=f"more {n}", aud="x")) for n in range(12)]
        assert statuses == [401] * 10 + [429] * 2

    run_in_virtual_time(play())


def test_the_addresses_of_one_host_count_as_one() -> None:
    """AUT-13: whoever has an address of IPv6 has a whole network of them (/64)."""
    by = verifier()
    for number in range(20):
        judged(token(jti=str(number), aud="x"), by, address=f"2001:db8:1:2::{number:x}")
    last: Any = judged(token(jti="one more", aud="x"), by, address="2001:db8:1:2:ffff::1")
    assert refused(asyncio.run(last)).status == 429
    let_in(token(jti="good"), by, address="2001:db8:1:3::1")


def test_a_refusal_for_too_many_bad_tokens_takes_its_time_as_far_as_there_is_room() -> None:
    """AUT-13: a storm of them costs next to nothing, since each caller has to wait for its answer."""
    by = verifier()
    for number in range(20):
        judged(token(jti=str(number), aud="x"), by)

    async def play() -> None:
        began = asyncio.get_running_loop().time()
        verdicts: list[Any] = [judged(token(jti=f"fresh {number}"), by) for number in range(MOST_HELD)]
        waiting = [asyncio.ensure_future(verdict) for verdict in verdicts]
        await asyncio.sleep(0)
        at_once = refused(judged(token(jti="one more"), by))
        assert (at_once.status, at_once.headers) == (429, {"Retry-After": "1"})
        assert {refused(verdict).status for verdict in await asyncio.gather(*waiting)} == {429}
        assert asyncio.get_running_loop().time() - began == pytest.approx(HOLD)
        again: Any = judged(token(jti="again"), by)
        assert refused(await again).status == 429

    run_in_virtual_time(play())


# -- scopes of the whole server


def test_a_token_without_the_scopes_of_the_server_is_told_which() -> None:
    """AUT-05, AUTH-5."""
    answer = judged(token(scope="other"), verifier(scopes=["notes", "files"]))
    assert refused(answer).status == 403
    assert refused(answer).data == {"requiredScopes": ["notes", "files"]}
    assert challenge_of(answer) == {
        "scheme": "Bearer",
        "error": "insufficient_scope",
        "scope": "notes files",
        "resource_metadata": METADATA,
    }


def test_what_a_tool_demands_is_asked_for_together_with_what_the_server_does() -> None:
    headers = verifier(scopes=["notes"]).demand(["write"], {})
    (found,) = read_challenges(headers["WWW-Authenticate"])
    assert found.scopes == ["notes", "write"]


# -- static tokens


def test_a_static_token_stands_for_its_principal() -> None:
    by = StaticTokens(TOKENS, resource=RESOURCE, clock=Clock())
    assert let_in("dev-token", by).key == "dev#ada"
    assert let_in("other.token~", by).client == "robot"
    for wrong in ("dev-toke", "dev-tokenx", "DEV-TOKEN", "x"):
        assert refused(judged(wrong, by)).status == 401


@pytest.mark.parametrize("tokens", [{}, {"": ADA}, {"two words": ADA}, {"x": "ada"}, {7: ADA}], ids=repr)
def test_static_tokens_that_cannot_be_shown_are_refused(tokens: Any) -> None:
    with pytest.raises(SetupError):
        StaticTokens(tokens, resource=RESOURCE)


def test_1000_guesses_take_as_long_whether_they_are_near_or_far() -> None:
    """AUT-17: by the medians of guesses in turn, which noise does not move together."""
    secret = "s3cret-" + "x" * 57
    by = StaticTokens({secret: ADA}, resource=RESOURCE, clock=Clock())
    near, far = [], []
    for number in range(500):
        for guess, times in ((f"{secret[:-4]}{number:04d}", near), (f"{number:04d}{secret[4:]}", far)):
            begun = time.perf_counter_ns()
            verdict = _checked(by, guess)
            times.append(time.perf_counter_ns() - begun)
            assert verdict is None
    assert statistics.median(near) / statistics.median(far) == pytest.approx(1.0, abs=0.25)


def _checked(by: StaticTokens, guess: str) -> Principal | None:
    try:
        return by.check(guess, NOW, RESOURCE).principal
    except BadToken:
        return None


def test_the_time_of_a_refusal_says_nothing_of_the_tokens_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUT-17: hashes of equal length are compared, all of them, in constant time."""
    compared: list[tuple[bytes, bytes]] = []
    by = StaticTokens(TOKENS, resource=RESOURCE, clock=Clock())
    monkeypatch.setattr("hmac.compare_digest", lambda one, other: compared.append((one, other)) or False)
    for guess in ("dev-token", "d", "dev-toke", "x" * 5000):
        compared.clear()
        judged(guess, by)
        assert len(compared) == len(TOKENS)
        assert {len(one) for pair in compared for one in pair} == {32}


# -- tokens that are bound to a key


KEY = make_key()
BOUND = token(cnf={"jkt": KEY.thumbprint()})


def shown_with_proof(by: Any, shown: str = BOUND, **changes: Any) -> Any:
    said = {"key": KEY, "method": "POST", "url": RESOURCE, "now": NOW, "token": shown, **changes}
    proof = make_proof(said.pop("key"), said.pop("method"), said.pop("url"), **said)
    return by.verify(facts(f"DPoP {shown}", headers={"dpop": proof}))


def test_a_bound_token_is_let_in_with_a_proof_and_is_not_kept() -> None:
    verdict = shown_with_proof(verifier())
    assert isinstance(verdict, Principal)
    assert verdict.confirmation == {"jkt": KEY.thumbprint()}


@pytest.mark.parametrize(
    "changes",
    [
        {"key": make_key()},
        {"method": "GET"},
        {"url": RESOURCE + "/x"},
        {"url": "https://evil.example/mcp"},
        {"token": "another"},
        {"now": NOW - 120},
        {"now": NOW + 120},
    ],
    ids=range(7),
)
def test_a_bound_token_with_another_proof_is_refused(changes: dict[str, Any]) -> None:
    by = verifier()
    assert isinstance(shown_with_proof(by), Principal)
    answer = shown_with_proof(by, **changes)
    assert refused(answer).status == 401
    assert challenge_of(answer)["scheme"] == "DPoP"


@pytest.mark.parametrize("scheme", ["Bearer", "DPoP"])
def test_a_bound_token_without_a_proof_is_refused(scheme: str) -> None:
    assert refused(judged(BOUND, scheme=scheme)).status == 401


def test_a_bound_token_is_no_bearer_token_even_with_its_proof() -> None:
    proof = make_proof(KEY, "POST", RESOURCE, now=NOW, token=BOUND)
    assert refused(judged(BOUND, headers={"dpop": proof})).status == 401


def test_a_replayed_proof_is_refused_however_often_the_token_was_seen() -> None:
    by = verifier()
    proof = make_proof(KEY, "POST", RESOURCE, now=NOW, token=BOUND)
    first, second = (by.verify(facts(f"DPoP {BOUND}", headers={"dpop": proof})) for _ in range(2))
    assert isinstance(first, Principal)
    assert challenge_of(second)["error"] == "invalid_dpop_proof"


async def test_a_proof_counts_once_over_all_processes_of_a_server() -> None:
    """RFC 9449 §11.1: whoever took a proof from the wire shows it to another process."""
    seen = Stores.memory().seen
    processes = [verifier(), verifier()]
    for by in processes:
        by.share_seen(seen)
    proof = make_proof(KEY, "POST", RESOURCE, now=NOW, token=BOUND)
    shown = facts(f"DPoP {BOUND}", headers={"dpop": proof})
    assert isinstance(await processes[0].verify(shown), Principal)
    answer = await processes[1].verify(shown)
    assert refused(answer).status == 401
    assert challenge_of(answer)["error"] == "invalid_dpop_proof"
    assert refused(processes[0].verify(shown)).status == 401
    assert isinstance(await shown_with_proof(processes[1]), Principal)


async def test_a_proof_that_cannot_be_noted_does_not_count() -> None:
    class Full:
        async def add(self, key: str, ttl: float) -> bool:
            raise Busy("Busy: full")

    by = verifier()
    by.share_seen(Full())
    assert refused(await shown_with_proof(by)).status == 503


async def test_a_nonce_of_one_process_is_taken_by_another() -> None:
    processes = [verifier(dpop_nonce=True), verifier(dpop_nonce=True)]
    nonce = refused(shown_with_proof(processes[0])).headers["DPoP-Nonce"]
    assert challenge_of(shown_with_proof(processes[1], nonce=nonce))["error"] == "use_dpop_nonce"
    for by in processes:
        by.share_keys([b"k" * 32])
    nonce = refused(shown_with_proof(processes[0])).headers["DPoP-Nonce"]
    assert isinstance(shown_with_proof(processes[1], nonce=nonce), Principal)


def test_a_token_bound_to_nothing_is_no_dpop_token() -> None:
    assert refused(shown_with_proof(verifier(), token())).status == 401


def test_only_bound_tokens_are_taken_where_that_is_asked_for() -> None:
    by = verifier(dpop="required")
    assert challenge_of(by.verify(facts()))["scheme"] == "DPoP"
    assert challenge_of(judged(token(), by))["scheme"] == "DPoP"
    assert isinstance(shown_with_proof(by), Principal)
    assert by.resource.document(RESOURCE)["dpop_bound_access_tokens_required"] is True


def test_a_nonce_is_handed_out_and_asked_for() -> None:
    by = verifier(dpop_nonce=True)
    answer = shown_with_proof(by)
    assert challenge_of(answer)["error"] == "use_dpop_nonce"
    nonce = refused(answer).headers["DPoP-Nonce"]
    assert isinstance(shown_with_proof(by, nonce=nonce), Principal)
    assert challenge_of(shown_with_proof(by, nonce="made-up"))["error"] == "use_dpop_nonce"


# -- tokens that are bound to a certificate


DER = b"the certificate"
CERTIFICATE_BOUND = token(cnf={"x5t#S256": base64url(sha256(DER).digest())})
ADAS = {"subject": ((("commonName", "ada"),),)}


def test_a_token_bound_to_a_certificate_needs_that_certificate() -> None:
    by = verifier()
    let_in(CERTIFICATE_BOUND, by, certificate=Certificate(ADAS, DER))
    for wrong in (None, Certificate(ADAS, b"another"), Certificate(ADAS, b"")):
        assert refused(judged(CERTIFICATE_BOUND, by, certificate=wrong)).status == 401


def test_only_a_trusted_proxy_may_hand_a_certificate_on() -> None:
    import ssl
    from urllib.parse import quote

    header = {"x-cert": quote(ssl.DER_cert_to_PEM_cert(DER))}
    by = verifier(certificate_header="x-cert", trusted_proxies=["10.0.0.0/8"])
    let_in(CERTIFICATE_BOUND, by, headers=header, address="10.1.2.3")
    assert refused(judged(CERTIFICATE_BOUND, by, headers=header, address="192.0.2.7")).status == 401
    assert refused(judged(CERTIFICATE_BOUND, verifier(), headers=header, address="10.1.2.3")).status == 401
    assert refused(judged(CERTIFICATE_BOUND, by, headers={"x-cert": "x"}, address="10.1.2.3")).status == 401


# -- certificates alone


def test_a_certificate_names_its_owner() -> None:
    known = facts(certificate=Certificate(ADAS, DER))
    verdict = ClientCertificates({"ada": ["notes"]}).verify(known)
    assert isinstance(verdict, Principal)
    assert (verdict.issuer, verdict.subject, verdict.scopes) == (CERTIFICATE, "ada", {"notes"})
    assert isinstance(ClientCertificates().verify(known), Principal)
    assert refused(ClientCertificates(["bob"]).verify(known)).status == 401
    assert refused(ClientCertificates().verify(facts())).status == 401
    nameless = facts(certificate=Certificate({}, DER))
    assert refused(ClientCertificates().verify(nameless)).status == 401


def test_tcp_takes_a_certificate_in_the_place_of_a_token_and_http_does_not() -> None:
    certificate = Certificate(ADAS, DER)
    assert isinstance(verifier().verify(facts(transport="tcp", certificate=certificate)), Principal)
    assert refused(verifier().verify(facts(certificate=certificate))).status == 401
    assert refused(verifier(scopes=["notes"]).verify(facts(transport="tcp", certificate=certificate))).status == 403


# -- the resource


def test_without_a_resource_a_server_is_itself_on_loopback_only() -> None:
    by = verifier(resource=None)
    here = {"headers": {"host": "localhost:8000"}, "url": "http://localhost:8000/mcp"}
    let_in(token(aud="http://localhost:8000/mcp"), by, **here)
    assert refused(judged(token(), by, **here)).status == 401
    assert challenge_of(by.verify(facts(**here)))["resource_metadata"].startswith("http://localhost:8000/.well-known/")
    assert refused(judged(token(), by)).status == 503
    for host in ("evil.example", "localhost.evil.example", '127.0.0.1"', ""):
        assert refused(judged(token(), by, headers={"host": host})).status == 503


def test_a_token_for_one_name_of_a_server_is_not_one_for_another() -> None:
    by = verifier(resource=None)
    shown = token(aud="http://localhost:8000/mcp")
    let_in(shown, by, headers={"host": "localhost:8000"}, url="http://localhost:8000/mcp")
    other = {"headers": {"host": "127.0.0.1:8000"}, "url": "http://127.0.0.1:8000/mcp"}
    assert refused(judged(shown, by, **other)).status == 401


def test_metadata_says_what_a_client_needs() -> None:
    """AUTH-3, AUTH-10, AUTH-11."""
    by = verifier(scopes=["notes"], resource_name="Notes")
    assert by.resource.document(RESOURCE) == {
        "resource": RESOURCE,
        "authorization_servers": ["https://login.example.com"],
        "scopes_supported": ["notes"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Notes",
        "dpop_signing_alg_values_supported": ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"],
    }


def test_no_token_is_in_any_text(caplog: pytest.LogCaptureFixture) -> None:
    """AUT-13: neither in logs, nor in errors, nor in what is shown of objects."""
    by = StaticTokens({"s3cret-token": ADA}, resource=RESOURCE, clock=Clock())
    with caplog.at_level(logging.DEBUG):
        texts = [repr(by), repr(judged("s3cret-token", by)), repr(judged("s3cret-other", by)), repr(vars(by))]
        texts.append(str(refused(judged("s3cret-token,x", by)).message))
    assert "s3cret" not in " ".join(texts) + caplog.text


def test_the_token_of_a_head_is_read_once_by_each_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has the same facts for as long as it has the same head; a verdict is not remembered with them."""
    read: list[str] = []
    original = token_verifier.read_credentials

    def counted(shown: Any) -> Any:
        read.append(shown.headers["authorization"])
        return original(shown)

    monkeypatch.setattr(token_verifier, "read_credentials", counted)
    clock = Clock()
    first, other = verifier(clock=clock), verifier(clock=clock)
    head = facts(f"Bearer {token()}")
    for _ in range(3):
        assert isinstance(first.verify(head), Principal)
    assert isinstance(other.verify(head), Principal)
    assert len(read) == 2
    clock.now += 7200.0
    assert refused(first.verify(head)).status == 401


def test_the_token_of_other_headers_is_not_the_one_that_was_read_before() -> None:
    """A verifier around another asks it about a token that came elsewhere: in a cookie, or beside that of a gateway."""
    by = verifier()
    gateway = facts(f"Bearer {token(sub='gateway')}")
    assert isinstance(by.verify(gateway), Principal)
    forged = structs.replace(gateway, headers={"authorization": f"Bearer {token()[:-6]}AAAAAA"})
    assert refused(by.verify(forged)).status == 401
    caller = by.verify(structs.replace(gateway, headers={"authorization": f"Bearer {token(sub='ada')}"}))
    assert isinstance(caller, Principal)
    assert caller.subject == "ada"
    again = by.verify(gateway)
    assert isinstance(again, Principal)
    assert again.subject == "gateway"
    assert refused(by.verify(structs.replace(gateway, headers={}))).status == 401
