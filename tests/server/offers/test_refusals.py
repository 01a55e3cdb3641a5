"""The numbers a tool refuses with, one family after the other."""

import pytest

from ferrule import Refused, Server, SetupError, ToolError
from ferrule.server.offers.refusals import FAMILIES, REASONS, REFUSALS, family_of
from ferrule.testing import pair


def refuser(**options) -> Server:
    """A server with one tool, which refuses with the number it is given."""
    app = Server("refuser", **options)

    @app.tool
    async def refuse(code: int, message: str = ""):
        raise Refused(code, message, data={"retry": 5})

    return app


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_refusal_of_each_family_is_a_result_with_its_number_reason_and_hint(era, wire, family):
    """ERRC-19, seed:TOOL-21"""
    async with wire(refuser(), era) as peer:
        for code in [code for code in FAMILIES[family] if code in REASONS]:
            reason, result = REASONS[code], (await peer.call("refuse", {"code": code}))["result"]
            assert result["isError"]
            assert result["content"] == [{"type": "text", "text": f"Refused ({code}): {reason.text}"}]
            assert result["_meta"]["ferrule/refusal"] == {
                "code": code,
                "reason": reason.text,
                "category": family,
                "severity": reason.severity,
                "hint": reason.hint,
                "data": {"retry": 5},
            }


@pytest.mark.parametrize("family", FAMILIES)
async def test_in_the_erlmcp_profile_it_is_an_error_with_that_number(wire, family):
    """ERRC-19"""
    async with wire(refuser(error_profile="erlmcp")) as peer:
        for code in [code for code in FAMILIES[family] if code in REASONS]:
            error = (await peer.call("refuse", {"code": code, "message": "no"}))["error"]
            assert error == {"code": code, "message": f"Refused ({code}): no", "data": {"retry": 5, "refusal": code}}


async def test_a_client_finds_the_refusal_in_the_error(era):
    """ERRC-19"""
    async with pair(refuser(), era) as client:
        with pytest.raises(ToolError, match=r"Refused \(1003\): slow down") as caught:
            await client.call_tool("refuse", {"code": 1003, "message": "slow down"})
    assert caught.value.result.meta["ferrule/refusal"]["category"] == "tool"


def test_every_number_has_its_meaning_a_hint_a_status_and_a_family():
    """ERRC-19"""
    assert (min(REASONS), max(REASONS)) == (1001, 1089)
    assert REFUSALS.keys() == REASONS.keys()
    for code, reason in REASONS.items():
        assert reason.text
        assert reason.hint
        assert reason.severity in {"warn", "error", "critical"}
        assert 400 <= reason.status < 600
        assert family_of(code) in FAMILIES
    assert family_of(1000) == "unknown"


def test_a_number_nobody_knows_is_refused():
    """ERRC-19"""
    with pytest.raises(SetupError, match="999 is not a refusal code"):
        Refused(999)
