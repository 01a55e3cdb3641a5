"""Which era a request belongs to, and which error numbers may be sent at all."""

from __future__ import annotations

import logging

import msgspec
import pytest
from msgspec import UNSET

from ferrule.errors import Refusal
from ferrule.protocol.era import RESERVED_CODES, STANDARD_CODES, Eras, sendable
from ferrule.protocol.handshake import NEWEST, Handshake
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.stateless import Sealing, Stateless
from ferrule.schema.methods import METHODS
from ferrule.schema.model import VERSION_KEY, Meta
from ferrule.wire.channel import Origin

HANDSHAKE = Handshake()
STATELESS = Stateless(Sealing(Seal(Keyring(["k" * 32])), lambda: 0.0, lambda: bytes(12), 600.0))
ERAS = Eras(HANDSHAKE, STATELESS)


def meta(text: str) -> Meta:
    return msgspec.json.decode(text, type=Meta)


class TestWhichEra:
    CASES = (
        (None, "", HANDSHAKE),
        ("{}", "", HANDSHAKE),
        ('{"progressToken":1}', "", HANDSHAKE),
        ('{"io.modelcontextprotocol/clientCapabilities":{}}', "", HANDSHAKE),
        ('{"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}', "", HANDSHAKE),
        (f'{{"{VERSION_KEY}":"2026-07-28"}}', "", STATELESS),
        (f'{{"{VERSION_KEY}":"2025-11-25"}}', "", STATELESS),
        (f'{{"{VERSION_KEY}":"never"}}', "", STATELESS),
        (f'{{"{VERSION_KEY}":""}}', "", STATELESS),
        (None, "2026-07-28", STATELESS),
        (None, "2025-11-25", HANDSHAKE),
        (None, "1999-01-01", HANDSHAKE),
        (f'{{"{VERSION_KEY}":"2026-07-28"}}', "2025-11-25", STATELESS),
    )

    @pytest.mark.parametrize(("text", "header", "era"), CASES)
    def test_the_key_with_the_version_decides_or_else_the_header(
        self, text: str | None, header: str, era: Handshake | Stateless
    ) -> None:
        """COMPAT-1 VER-6 META-6: a bare `_meta` is no mark; a request that names its version is stateless."""
        found = ERAS.era_of(None if text is None else meta(text), Origin("http", version=header))
        assert found is era

    def test_the_reserved_keys_have_their_exact_names(self) -> None:
        """META-6: the keys of a request's `_meta`."""
        names = {field.encode_name for field in msgspec.structs.fields(Meta)}
        prefix = "io.modelcontextprotocol/"
        assert names == {
            "progressToken",
            prefix + "protocolVersion",
            prefix + "clientInfo",
            prefix + "clientCapabilities",
            prefix + "logLevel",
        }

    def test_values_under_keys_we_do_not_implement_are_left_alone(self) -> None:
        """META-5 RPC-15: whatever their shape."""
        text = '{"io.modelcontextprotocol/related-task":7,"traceparent":[],"com.example/x":{"a":[{}]},"":null}'
        assert meta(text).version is UNSET


class TestWhatIsAdmitted:
    def test_sessions_with_the_same_methods_and_revision_share_the_set(self) -> None:
        """Thousands of sessions may be open at once."""
        eras, methods = Eras(HANDSHAKE, STATELESS), {"ping": METHODS["ping"], "initialize": METHODS["initialize"]}
        admitted = eras.admitted(methods, NEWEST)
        assert admitted == {"ping"}
        assert eras.admitted(methods, NEWEST) is admitted
        methods["tools/list"] = METHODS["tools/list"]
        assert eras.admitted(methods, NEWEST) == {"ping", "tools/list"}
        assert eras.admitted({"ping": METHODS["ping"], "a": METHODS["ping"], "b": METHODS["ping"]}, NEWEST) == {
            "ping",
            "a",
            "b",
        }


class TestNumbers:
    def test_the_five_numbers_of_json_rpc_are_sent_as_they_are(self) -> None:
        """ERR-1: in both eras."""
        for code in (-32700, -32600, -32601, -32602, -32603):
            assert HANDSHAKE.code(Refusal("x", code=code)) == code
            assert STATELESS.code(Refusal("x", code=code)) == code

    @pytest.mark.parametrize("code", [1, 0, -1, 1001, 1089, -31999, -32769, 2**40, -(2**40)])
    def test_numbers_outside_the_reserved_range_are_the_applications(self, code: int) -> None:
        """ERR-2 ERRC-06 ERR-5: passed through in both eras."""
        assert HANDSHAKE.code(Refusal("x", code=code)) == code
        assert STATELESS.code(Refusal("x", code=code)) == code

    @pytest.mark.parametrize("code", [-32768, -32100, -32099, -32050, -32033, -32019, -32604, -32500])
    def test_an_unknown_reserved_number_becomes_an_internal_error_with_a_warning(
        self, code: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """ERRC-06 ERR-2: nobody invents numbers there."""
        with caplog.at_level(logging.WARNING):
            assert HANDSHAKE.code(Refusal("x", code=code)) == -32603
            assert STATELESS.code(Refusal("x", code=code)) == -32603
        assert str(code) in caplog.text

    def test_the_stateless_era_sends_three_numbers_of_its_own_and_no_other(self) -> None:
        """ERR-2 ERR-3: of the whole reserved range only the standard ones and -32020, -32021, -32022 go out."""
        logging.getLogger("ferrule.protocol").setLevel(logging.ERROR)
        try:
            sent = {STATELESS.code(Refusal("x", code=code)) for code in RESERVED_CODES}
        finally:
            logging.getLogger("ferrule.protocol").setLevel(logging.NOTSET)
        assert sent == STANDARD_CODES | {-32020, -32021, -32022}

    def test_a_known_number_needs_no_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        assert sendable(-32020, frozenset({-32020})) == -32020
        assert not caplog.records
