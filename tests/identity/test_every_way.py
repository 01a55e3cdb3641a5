"""A verifier makes the principal of a call on every transport, in both eras; no middleware is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from identity_desk import CHALLENGE, STEP_UP, ByHeader, new_server, served

from ferrule import CarrierError, HttpFailed


async def test_a_call_knows_who_sent_it(spoken: tuple[str, str], pause: float | None, tmp_path: Path) -> None:
    way, era = spoken
    verifier = ByHeader(pause=pause)
    async with served(new_server(verifier), way, tmp_path) as place:
        for user in ("ada", "bob"):
            async with place.client(user, era) as client:
                assert (await client.call_tool("whoami")).data == f"staff#{user}"
                assert (await client.call_tool("scopes")).data == ["read"]
    assert verifier.asked


async def test_a_tool_that_asks_gets_its_answer(spoken: tuple[str, str], pause: float | None, tmp_path: Path) -> None:
    """The state of a stateless question is bound to the principal, who is known before the call is dispatched."""
    way, era = spoken
    async with (
        served(new_server(ByHeader(pause=pause)), way, tmp_path) as place,
        place.client("ada", era) as client,
    ):
        for _ in range(2):
            assert (await client.call_tool("book")).text == "staff#ada row 12"


async def test_values_belong_to_the_principal(spoken: tuple[str, str], tmp_path: Path) -> None:
    way, era = spoken
    async with (
        served(new_server(ByHeader()), way, tmp_path) as place,
        place.client("ada", era) as ada,
        place.client("bob", era) as bob,
    ):
        assert [(await ada.call_tool("count")).data for _ in range(3)] == [1, 2, 3]
        assert (await bob.call_tool("count")).data == 1


@pytest.mark.parametrize(("user", "status", "challenge"), [("", 401, CHALLENGE), ("mallory", 403, STEP_UP)])
async def test_who_is_refused_learns_how_to_be_let_in(
    spoken: tuple[str, str], pause: float | None, user: str, status: int, challenge: str, tmp_path: Path
) -> None:
    way, era = spoken
    app = new_server(ByHeader(pause=pause))
    async with served(app, way, tmp_path) as place:
        if way == "tcp":
            with pytest.raises(CarrierError, match="Forbidden: not you"):
                await place.client(user, era).connect()
        else:
            with pytest.raises(HttpFailed) as refused:
                await place.client(user, era).connect()
            assert refused.value.status == status
            assert refused.value.headers["www-authenticate"] == challenge
        assert [link for link in app.host.links if link.session.origin.principal] == []
        async with place.client("ada", era) as client:
            assert (await client.call_tool("whoami")).data == "staff#ada"
