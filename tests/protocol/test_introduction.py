"""How a client's requests say who sends them: once and for all, or each for itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from ferrule.protocol.introduction import AlwaysIntroduced, OnceIntroduced
from ferrule.schema.model import ClientCapabilities, ElicitationCapability, Implementation

PREFIX = "io.modelcontextprotocol/"
CAPABILITIES = ClientCapabilities(elicitation=ElicitationCapability(form={}))
ALWAYS = AlwaysIntroduced("2026-07-28", CAPABILITIES, Implementation(name="c", version="1"), "debug")
FACTS = {
    PREFIX + "protocolVersion": "2026-07-28",
    PREFIX + "clientCapabilities": {"elicitation": {"form": {}}},
    PREFIX + "clientInfo": {"name": "c", "version": "1"},
    PREFIX + "logLevel": "debug",
}


def written(params: Any) -> Any:
    return None if params is UNSET else msgspec.json.decode(msgspec.json.encode(params))


class TestTheHandshakeEra:
    CASES = (
        ({}, None, None, None),
        ({"a": 1}, None, None, {"a": 1}),
        ({}, 7, None, {"_meta": {"progressToken": 7}}),
        ({}, 0, None, {"_meta": {"progressToken": 0}}),
        ({}, "", None, {"_meta": {"progressToken": ""}}),
        ({"a": 1}, None, {"com.example/x": [1]}, {"a": 1, "_meta": {"com.example/x": [1]}}),
        ({}, "t", {"x": 1}, {"_meta": {"x": 1, "progressToken": "t"}}),
        ({}, None, {}, None),
    )

    @pytest.mark.parametrize(("params", "token", "meta", "sent"), CASES)
    def test_only_what_the_caller_says_is_added(self, params: Any, token: Any, meta: Any, sent: Any) -> None:
        """META-1 PROG-1: the caller's metadata and the progress token, which may be 0 or empty."""
        assert written(OnceIntroduced().stamp(params, token, meta)) == sent

    def test_the_callers_dictionaries_are_left_alone(self) -> None:
        params, meta = {"a": 1}, {"x": 1}
        OnceIntroduced().stamp(params, 3, meta)
        ALWAYS.stamp(params, 3, meta)
        assert (params, meta) == ({"a": 1}, {"x": 1})


class TestTheStatelessEra:
    def test_every_request_says_who_sends_it(self) -> None:
        """VER-6 STL-1 STL-2 STL-3: version, capabilities, here also identity and log level."""
        assert written(ALWAYS.stamp({}, None, None)) == {"_meta": FACTS}
        assert written(ALWAYS.stamp({"name": "t"}, None, None)) == {"name": "t", "_meta": FACTS}

    def test_what_every_request_says_is_written_once(self) -> None:
        """STL-1: a request that adds nothing carries the very bytes of the one before; a handshake needs none."""
        assert written(ALWAYS.plain) == FACTS
        assert ALWAYS.stamp({}, None, None)["_meta"] is ALWAYS.plain
        assert OnceIntroduced().plain is UNSET

    def test_identity_and_log_level_may_be_left_out(self) -> None:
        """STL-2 STL-3: version and capabilities may not, even when there are none."""
        plain = AlwaysIntroduced("2026-07-28", ClientCapabilities(), None)
        assert written(plain.stamp({}, None, None)) == {
            "_meta": {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}
        }

    @pytest.mark.parametrize("token", [0, "", 5, "t"])
    def test_the_token_and_the_callers_metadata_are_added(self, token: Any) -> None:
        """META-1 STL-3: beside the facts, which the caller cannot change."""
        sent = written(ALWAYS.stamp({}, token, {"x/y": 1, PREFIX + "protocolVersion": "1999"}))
        assert sent == {"_meta": {**FACTS, "x/y": 1, "progressToken": token}}
        assert written(ALWAYS.stamp({}, token, None)) == {"_meta": {**FACTS, "progressToken": token}}
        assert written(ALWAYS.stamp({}, None, {"x/y": 1})) == {"_meta": {**FACTS, "x/y": 1}}
