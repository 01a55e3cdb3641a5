"""The one table of the `erlmcp` error profile."""

from __future__ import annotations

from ferrule import errors
from ferrule.codes import ErrorCode
from ferrule.protocol import handshake
from ferrule.protocol.handshake import ERLMCP, Handshake

REASONS = {
    "ParseError": (-32700, 1070),
    "InvalidRequest": (-32600, 1066),
    "MethodNotFound": (-32601, 1007),
    "InvalidParams": (-32602, 1021),
    "Internal": (-32603, 1079),
    "Busy": (-32000, 1081),
    "Overloaded": (-32000, 1085),
    "NoTarget": (-32000, 1086),
    "StoreUnavailable": (-32000, 1081),
    "RateLimited": (-32010, 1003),
    "ResourceNotFound": (-32001, 1046),
    "ToolNotFound": (-32002, 1048),
    "PromptNotFound": (-32003, 1050),
    "CapabilityOff": (-32004, 1007),
    "NotInitialized": (-32005, 1076),
    "MessageTooLarge": (-32012, 1068),
    "InvalidUri": (-32022, 1023),
    "ToolFailed": (-32031, 1079),
    "ToolTimedOut": (-32032, 1069),
    "ResultTooLarge": (-32036, 1068),
    "ToolBusy": (-32038, 1081),
    "Forbidden": (-32600, 1014),
    "OfferRefused": (-32062, 1027),
}

SEEDED = {
    "ResourceNotFound": -32001,
    "ToolNotFound": -32002,
    "PromptNotFound": -32003,
    "CapabilityOff": -32004,
    "NotInitialized": -32005,
    "MessageTooLarge": -32012,
    "InvalidUri": -32022,
    "ToolFailed": -32031,
    "ToolTimedOut": -32032,
    "OfferRefused": -32062,
}


def test_the_table_has_the_numbers_of_the_seeds() -> None:
    """ERRC-08, ERRC-09, ERRC-10, ERRC-11, ERRC-12, ERRC-13, ERRC-14, ERRC-15, ERRC-16, ERRC-17"""
    assert {name: ERLMCP[name].code for name in SEEDED} == SEEDED


def test_every_number_stays_what_clients_know() -> None:
    assert {name: (numbers.code, numbers.refusal) for name, numbers in ERLMCP.items()} == REASONS


def test_every_row_is_a_refusal_there_is_and_its_numbers_are_in_their_ranges() -> None:
    """ERRC-06, ERRC-19"""
    for name, numbers in ERLMCP.items():
        kind = getattr(errors, name, None) or getattr(handshake, name)
        assert issubclass(kind, errors.Refusal)
        assert -32768 <= numbers.code <= -32000
        assert 1001 <= numbers.refusal <= 1089
        assert numbers.code != ErrorCode.URL_ELICITATION_REQUIRED


def test_the_reason_goes_into_the_data_beside_what_is_there() -> None:
    """ERRC-19"""
    seeded, plain = Handshake(erlmcp_codes=True), Handshake()
    missing, busy = errors.ToolNotFound("t"), errors.Busy()
    assert seeded.data(missing) == {"tool": "t", "refusal": 1048}
    assert seeded.data(busy) == {"retryAfter": 1, "refusal": 1081}
    assert seeded.data(errors.InvalidParams("no")) == {"refusal": 1021}
    assert seeded.data(errors.InvalidParams("no", [1])) == [1]
    assert (plain.data(missing), plain.data(busy)) == (missing.data, busy.data)


def test_a_number_given_by_hand_is_meant() -> None:
    assert Handshake(erlmcp_codes=True).code(errors.ToolNotFound("t")) == -32002
    assert Handshake(erlmcp_codes=True).code(errors.InvalidParams("no", code=4711)) == 4711
