"""What it costs to be protected: an HTTP call with a token, beside the same call without one.

The key and the token are made here: the server is told the public half of the key. With `cached` it checks the token
once and knows it from then on, as servers do; the others are told to forget it, so that every call is a check. `alone`
is the signature and nothing else, as `cryptography` verifies it. `in a call` is the floor: each call verifies one, and
nothing is read of any token.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode
from dataclasses import replace
from functools import cache

from bench.contestants import (
    ES256_ALONE,
    ES256_INSIDE,
    FERRULE,
    OWN_CACHED,
    OWN_ES256,
    OWN_RS256,
    RS256_ALONE,
    RS256_INSIDE,
    Contestant,
    ferrule,
)
from bench.machine import SERVER_CORE, pinned
from bench.messages import OPERATIONS
from bench.results import Results
from bench.rounds import Case, Pace, race
from bench.streamable.load import HttpLoad
from bench.streamable.server import HttpServer
from bench.streamable.wire import Mode

SCENARIO = "http_protected"
CONNECTIONS = 32
CASE = f"{Mode.STATELESS.label} x{CONNECTIONS}"
ISSUER = "https://login.bench.example"
AUDIENCE = "https://bench.example/mcp"
LIFETIME = 7200
SIGNATURES = 500
"""How many are verified in a row."""


@cache
def proof(algorithm: str) -> tuple[str, str]:
    """Return a token, and the key set that verifies it as JSON."""
    from ferrule.auth.jose import make_key, sign

    key = make_key(algorithm)
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": "ada", "aud": AUDIENCE, "client_id": "bench", "iat": now, "exp": now + LIFETIME}
    token = sign({"typ": "at+jwt", "kid": key.id}, claims, key, algorithm)
    return token, json.dumps({"keys": [{**key.public(), "alg": algorithm}]})


class ProtectedServer(HttpServer):
    """Our server, which lets in who shows the token."""

    def __init__(self, contestant: Contestant) -> None:
        algorithm = contestant.environment.get("BENCH_ALGORITHM", "")
        token = ""
        if algorithm:
            token, keys = proof(algorithm)
            contestant = replace(contestant, environment={**contestant.environment, "BENCH_KEYS": keys})
        super().__init__(contestant, Mode.STATELESS, token=token)


def contestants() -> list[Contestant]:
    """Return ourselves without protection, with tokens that are known or checked each time, and the floors."""
    own = ferrule()

    def protected(name: str, algorithm: str, checks: str) -> Contestant:
        told = {
            "BENCH_ALGORITHM": algorithm,
            "BENCH_CHECKS": checks,
            "BENCH_ISSUER": ISSUER,
            "BENCH_AUDIENCE": AUDIENCE,
            "BENCH_TOKEN": proof(algorithm)[0],
        }
        return replace(own, name=name, environment={**own.environment, **told})

    return [
        own,
        protected(OWN_CACHED, "RS256", "once"),
        protected(OWN_RS256, "RS256", "always"),
        protected(OWN_ES256, "ES256", "always"),
        protected(RS256_INSIDE, "RS256", "signature"),
        protected(ES256_INSIDE, "ES256", "signature"),
    ]


def run_protected(pace: Pace, results: Results) -> None:
    """Measure calls with and without tokens."""
    operation = OPERATIONS["call"]
    case = Case(SCENARIO, CASE, lambda server: WakefulLoad(server, operation, CONNECTIONS))
    race(contestants(), ProtectedServer, [case], pace, results)
    for round_number in range(1, pace.rounds + 1):
        for name, algorithm in ((RS256_ALONE, "RS256"), (ES256_ALONE, "ES256")):
            results.add(SCENARIO, CASE, name, round_number, {"cpu_us": signature_us(algorithm)})


class WakefulLoad(HttpLoad):
    """Load that looks for answers all the time."""

    awake = True


def signature_us(algorithm: str) -> float:
    """Return the CPU time of verifying one signature with a key that is ready, in µs."""
    from ferrule.auth.jose import read_key, verify_signature

    token, keys = proof(algorithm)
    key = read_key(json.loads(keys)["keys"][0])
    verify_signature(token, key, algorithm)
    check = key.checks[algorithm]
    signed, _, signature = token.rpartition(".")
    raw = urlsafe_b64decode(signature + "==")
    with pinned(SERVER_CORE):
        began = time.process_time_ns()
        for _ in range(SIGNATURES):
            check(raw, signed.encode())
        return round((time.process_time_ns() - began) / SIGNATURES / 1e3, 2)


def share(results: Results, name: str, beside: str = FERRULE) -> float | None:
    """Return what a call costs under some protection, as a multiple of the same call without, or of another."""
    found = results.ratio(SCENARIO, CASE, name, beside)
    return None if found is None else found.median
