"""A storm of bad tokens: how long one good caller waits for its answers beside those who show them.

One caller shows a token the server knows. Beside it are 64 others, each with one request in flight, at 16 addresses
that are not its own: with that token too (`good others`), or with bad ones (`bad others`), each of them new. A quarter
of those has expired, a quarter has a wrong signature, a quarter names a key nobody has, and a quarter is no token at
all. Times are those of the one good caller, once every other has used up what an address may show before it has to
wait; CPU is the server's, for an answer of any kind.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator

from bench.contestants import OWN_CACHED, Contestant
from bench.messages import OPERATIONS, Operation
from bench.process import BadAnswer
from bench.results import Results
from bench.rounds import Case, Pace, race
from bench.streamable.load import Connection, HttpLoad
from bench.streamable.protected import AUDIENCE, ISSUER, LIFETIME, ProtectedServer, contestants
from bench.streamable.server import HttpServer
from bench.streamable.wire import Address, whole_response

SCENARIO = "http_storm"
OTHERS = 64
ADDRESSES = 16
ALONE, GOOD, BAD = "alone", f"{OTHERS} good others", f"{OTHERS} bad others"
UNAUTHORIZED, TOO_MANY = 401, 429
LONGEST_BURST = 5.0
"""Seconds in which the others use up what they may show."""
KINDS = ("expired", "wrong signature", "unknown key", "garbage")
SIGNATURE_SIZE = 256
"""Bytes of the signatures of RS256."""


def _written(part: bytes) -> str:
    return urlsafe_b64encode(part).rstrip(b"=").decode()


def bad_tokens(kind: str, token: str) -> Iterator[str]:
    """Return bad tokens of a kind without end, each of them new, made of a good one."""
    header, claims, _ = token.split(".")
    number = 0
    while True:
        number += 1
        signature = _written(number.to_bytes(8, "big") + os.urandom(SIGNATURE_SIZE - 8))
        if kind == "garbage":
            yield f"{_written(os.urandom(90))}.{_written(os.urandom(120))}.{signature}"
            continue
        if kind == "unknown key":
            header = _written(json.dumps({"alg": "RS256", "typ": "at+jwt", "kid": f"nobody {number}"}).encode())
        elif kind == "expired":
            past = int(time.time()) - LIFETIME
            said = {"iss": ISSUER, "sub": "ada", "aud": AUDIENCE, "client_id": "bench", "iat": past, "exp": past + 60}
            claims = _written(json.dumps(said, separators=(",", ":")).encode())
        yield f"{header}.{claims}.{signature}"


def _address(number: int) -> str:
    """Return where one of the others calls from; any address of this machine will do."""
    return f"127.0.0.{2 + number % ADDRESSES}"


class BadCaller(Connection):
    """A connection that shows another bad token with each request, and expects to be refused."""

    __slots__ = ("_tokens", "_wrapped", "limited")

    def __init__(self, address: Address, operation: Operation, kind: str, number: int) -> None:
        super().__init__(address, operation, source=_address(number))
        head, _, rest = self.before.partition(address.token.encode())
        self._wrapped = head, rest
        self._tokens = bad_tokens(kind, address.token)
        self.limited = False
        """Whether it has shown more than it may."""

    def ask(self, identity: bytes) -> None:
        """Send a request with the next bad token."""
        head, rest = self._wrapped
        self.before = head + next(self._tokens).encode() + rest
        super().ask(identity)

    def repeated(self, data: bytes) -> bool:
        """Return whether this is a whole refusal; raises BadAnswer where it is something else."""
        response = whole_response(data)
        if response is None:
            return False
        if response.status == TOO_MANY:
            self.limited = True
        elif response.status != UNAUTHORIZED:
            raise BadAnswer(f"a bad token was answered with {response.status}")
        return True


class StormLoad(HttpLoad):
    """The one good caller, whose times are kept, and those beside it."""

    def __init__(self, server: HttpServer, case: str) -> None:
        others = 0 if case == ALONE else OTHERS
        super().__init__(server, OPERATIONS["call"], 1 + others)
        self._case = case
        self._one: Connection

    def _open(self, addresses: list[Address]) -> list[Connection]:
        self._one = Connection(addresses[0], self._operation)
        others = []
        for number, address in enumerate(addresses[1:]):
            if self._case == BAD:
                others.append(BadCaller(address, self._operation, KINDS[number % len(KINDS)], number))
            else:
                others.append(Connection(address, self._operation, source=_address(number)))
        return [self._one, *others]

    def _keep_going(self, seconds: float, at_least: int = 0) -> int:
        answers = super()._keep_going(seconds, at_least)
        if at_least:
            while not self._latencies:
                answers += super()._keep_going(0.0, 1)
            return answers
        bad = [one for one in self._connections.values() if isinstance(one, BadCaller)]
        end = time.monotonic() + LONGEST_BURST
        while not all(one.limited for one in bad):
            answers += super()._keep_going(0.0, 1)
            if time.monotonic() > end:
                raise BadAnswer("the others never showed more than they may: this machine is too busy for a storm")
        return answers

    def _keep(self, connection: Connection, latency: int) -> None:
        if connection is self._one:
            super()._keep(connection, latency)


def run_storm(pace: Pace, results: Results) -> None:
    """Measure one good caller alone, beside good ones, and beside bad ones."""
    field: list[Contestant] = [one for one in contestants() if one.name == OWN_CACHED]
    cases = [_case(name) for name in (ALONE, GOOD, BAD)]
    race(field, ProtectedServer, cases, pace, results)


def _case(name: str) -> Case[ProtectedServer]:
    return Case(SCENARIO, name, lambda server: StormLoad(server, name))


def slowed(results: Results, other: str) -> float | None:
    """Return how long the good caller waits beside bad ones, as a multiple of how long it waits in another case."""
    bad = _waits(results, BAD)
    beside = _waits(results, other)
    ratios = [bad[number] / beside[number] for number in bad if number in beside]
    return statistics.median(ratios) if ratios else None


def _waits(results: Results, case: str) -> dict[int, float]:
    rows = [row for row in results.rows if row["scenario"] == SCENARIO and row["case"] == case]
    return {row["round"]: row["p50_us"] for row in rows}
