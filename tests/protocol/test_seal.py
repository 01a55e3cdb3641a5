"""A sealed state opens only unchanged, in time, with a known key and for the request it was made for."""

from __future__ import annotations

import subprocess
import sys
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import FerruleError, InvalidParams, SetupError
from ferrule.protocol.seal import (
    MAX_TOKEN_SIZE,
    NONCE_SIZE,
    Expired,
    Keyring,
    Seal,
    SealTooLarge,
    Tampered,
    request_binding,
)

KEY, OTHER_KEY = "k" * 32, b"\x00\xff" * 16
NONCE = bytes(range(NONCE_SIZE))
BINDING = request_binding("alice", "tools/call", {"name": "book", "arguments": {"city": "Oslo"}})
SEAL = Seal(Keyring([KEY]))
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

PLAIN = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    PLAIN | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
PARAMS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)


def sealed(payload: bytes = b'{"seat":3}', *, nonce: bytes = NONCE, expires: float = 100.0, seal: Seal = SEAL) -> str:
    return seal.seal(payload, binding=BINDING, expires=expires, nonce=nonce)


class TestOpening:
    @given(st.binary(max_size=300), st.binary(min_size=NONCE_SIZE, max_size=NONCE_SIZE), st.binary(max_size=40))
    def test_what_was_sealed_opens_again(self, payload: bytes, nonce: bytes, binding: bytes) -> None:
        """MRTR-6: an untouched state comes back as it was."""
        token = SEAL.seal(payload, binding=binding, expires=10.0, nonce=nonce)
        assert SEAL.open(token, binding=binding, now=9.9) == payload

    def test_the_token_is_url_safe_text_that_shows_nothing(self) -> None:
        """MRTR-6: the state is hidden from the peer that carries it."""
        token = sealed(b"the-secret-answer" * 4)
        assert set(token) <= set(ALPHABET)
        assert b"secret" not in urlsafe_b64decode(token + "=" * (-len(token) % 4))

    def test_two_nonces_give_two_tokens(self) -> None:
        assert sealed(nonce=NONCE) != sealed(nonce=NONCE[::-1])
        assert sealed(nonce=NONCE) == sealed(nonce=NONCE)

    def test_every_flipped_bit_of_the_text_is_refused(self) -> None:
        """MRTR-6, ERRA-2: tampering anywhere is an error."""
        token = sealed()
        for place, letter in enumerate(token):
            for bit in range(8):
                forged = token[:place] + chr(ord(letter) ^ (1 << bit)) + token[place + 1 :]
                with pytest.raises(Tampered):
                    SEAL.open(forged, binding=BINDING, now=0.0)

    @given(st.binary(max_size=40), st.data())
    def test_every_other_letter_is_refused(self, payload: bytes, data: st.DataObject) -> None:
        """MRTR-6: also where base64 has spare bits in its last letter."""
        token = sealed(payload)
        place = data.draw(st.integers(0, len(token) - 1) | st.just(len(token) - 1))
        letter = data.draw(st.sampled_from(ALPHABET.replace(token[place], "")))
        with pytest.raises(Tampered):
            SEAL.open(token[:place] + letter + token[place + 1 :], binding=BINDING, now=0.0)

    @given(st.text(max_size=80))
    def test_any_other_text_is_refused(self, text: str) -> None:
        """MRTR-6: hostile input raises nothing but a refusal."""
        with pytest.raises(Tampered):
            SEAL.open(text, binding=BINDING, now=0.0)

    def test_a_token_with_something_added_or_cut_is_refused(self) -> None:
        token = sealed()
        for forged in (token + "A", token + "=", token + "\n", " " + token, token[:-1], token[4:], token + token, ""):
            with pytest.raises(Tampered):
                SEAL.open(forged, binding=BINDING, now=0.0)

    def test_tampering_is_an_invalid_params_error_that_says_nothing_more(self) -> None:
        """MRTR-6: rejected with a JSON-RPC error, the same whatever was wrong."""
        texts = set()
        for forged, binding in ((sealed()[:-1] + "!", BINDING), ("zzzz", BINDING), (sealed(), b"other")):
            with pytest.raises(InvalidParams) as refused:
                SEAL.open(forged, binding=binding, now=0.0)
            assert refused.value.code == -32602
            assert refused.value.data is None
            assert refused.value.__cause__ is None
            texts.add(refused.value.message)
        assert len(texts) == 1

    def test_a_token_of_an_earlier_release_still_opens(self) -> None:
        """The form of a token is a promise to those that are under way; a new form needs a new version."""
        token = "ARJMdWJAWQAAAAAAAAABAgMEBQYHCAkKC1KOqUkKmsSHaTfTn4wiir4whH_3Z2nj4tTL"
        assert SEAL.open(token, binding=b"this request", now=99.9) == b'{"seat":3}'
        assert SEAL.seal(b'{"seat":3}', binding=b"this request", expires=100.0, nonce=NONCE) == token


class TestExpiry:
    @given(st.floats(0, 1e10), st.floats(0, 1e10))
    def test_a_token_opens_before_its_expiry_only(self, expires: float, now: float) -> None:
        """MRTR-7: the state has a short life."""
        token = sealed(expires=expires)
        if now < expires:
            assert SEAL.open(token, binding=BINDING, now=now)
        else:
            with pytest.raises(Expired) as expired:
                SEAL.open(token, binding=BINDING, now=now)
            assert isinstance(expired.value, InvalidParams)

    def test_an_expiry_that_is_no_time_never_opens(self) -> None:
        with pytest.raises(Expired):
            SEAL.open(sealed(expires=float("nan")), binding=BINDING, now=0.0)

    def test_a_forged_token_is_never_called_expired(self) -> None:
        with pytest.raises(Tampered):
            SEAL.open(sealed(expires=1.0), binding=b"other", now=2.0)


class TestKeys:
    def test_a_rotated_key_still_opens_and_the_new_one_seals(self) -> None:
        """T-54: keys are shared and changed without breaking what is under way."""
        token = sealed()
        rotated = Seal(Keyring([OTHER_KEY, KEY]))
        assert rotated.open(token, binding=BINDING, now=0.0) == b'{"seat":3}'
        with pytest.raises(Tampered):
            SEAL.open(sealed(seal=rotated), binding=BINDING, now=0.0)

    def test_a_dropped_key_no_longer_opens(self) -> None:
        with pytest.raises(Tampered):
            Seal(Keyring([OTHER_KEY])).open(sealed(), binding=BINDING, now=0.0)

    def test_two_processes_with_the_same_key_open_each_others_tokens(self) -> None:
        """T-54: nothing depends on the process that sealed."""
        assert Seal(Keyring([KEY.encode()])).open(sealed(), binding=BINDING, now=0.0) == b'{"seat":3}'

    @pytest.mark.parametrize("keys", [[], ["short"], [b"x" * 31], [KEY, b"x" * 31], "k" * 40, b"k" * 40])
    def test_a_short_or_missing_key_is_refused_at_setup(self, keys: Any) -> None:
        with pytest.raises(SetupError) as refused:
            Keyring(keys)
        assert "xxx" not in str(refused.value)

    def test_the_key_does_not_show(self) -> None:
        assert KEY not in repr(Keyring([KEY])) + str(vars(SEAL))

    def test_the_cipher_is_loaded_on_first_use_only(self) -> None:
        code = (
            "import sys; from ferrule.protocol.seal import Keyring, Seal; seal = Seal(Keyring(['k' * 32]));"
            "assert not any(name.startswith('cryptography') for name in sys.modules);"
            "seal.seal(b'', binding=b'', expires=1, nonce=bytes(12));"
            "assert 'cryptography' in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class TestSize:
    def test_a_state_over_the_limit_is_refused_with_its_size(self) -> None:
        limit = len(sealed(b"x" * 100))
        exact = Seal(Keyring([KEY]), max_size=limit)
        assert exact.open(sealed(b"x" * 100, seal=exact), binding=BINDING, now=0.0) == b"x" * 100
        with pytest.raises(SealTooLarge) as refused:
            sealed(b"x" * 103, seal=exact)
        assert isinstance(refused.value, FerruleError)
        assert (refused.value.size, refused.value.limit) == (limit + 4, limit)
        assert str(refused.value) == f"the sealed request state would be {limit + 4} bytes; the limit is {limit} bytes"

    def test_the_default_limit_is_64_kib(self) -> None:
        assert SEAL.max_size == MAX_TOKEN_SIZE == 65_536

    def test_a_token_over_the_limit_is_refused_unread(self) -> None:
        small = Seal(Keyring([KEY]), max_size=64)
        with pytest.raises(Tampered):
            small.open(sealed(b"x" * 100), binding=BINDING, now=0.0)

    def test_a_token_at_the_limit_opens(self) -> None:
        token = sealed(b"x" * 100)
        assert Seal(Keyring([KEY]), max_size=len(token)).open(token, binding=BINDING, now=0.0) == b"x" * 100
        with pytest.raises(Tampered):
            Seal(Keyring([KEY]), max_size=len(token) - 1).open(token, binding=BINDING, now=0.0)

    @pytest.mark.parametrize("size", [0, 11, 13])
    def test_a_nonce_of_another_size_is_refused(self, size: int) -> None:
        with pytest.raises(SetupError):
            sealed(nonce=bytes(size))


class TestBinding:
    @pytest.mark.parametrize(
        ("principal", "method", "params"),
        [
            ("bob", "tools/call", {"name": "book", "arguments": {"city": "Oslo"}}),
            (None, "tools/call", {"name": "book", "arguments": {"city": "Oslo"}}),
            ("alice", "prompts/get", {"name": "book", "arguments": {"city": "Oslo"}}),
            ("alice", "tools/call", {"name": "book", "arguments": {"city": "Rome"}}),
            ("alice", "tools/call", {"name": "cook", "arguments": {"city": "Oslo"}}),
            ("alice", "tools/call", {"name": "book"}),
        ],
    )
    def test_another_principal_method_or_params_is_refused(
        self, principal: str | None, method: str, params: dict[str, Any]
    ) -> None:
        """MRTR-7: the state opens only for the request it was made for."""
        with pytest.raises(Tampered):
            SEAL.open(sealed(), binding=request_binding(principal, method, params), now=0.0)

    @given(PARAMS, st.dictionaries(st.sampled_from(["_meta", "inputResponses", "requestState"]), JSON))
    def test_what_differs_on_a_retry_does_not_count(self, params: dict[str, Any], retry: dict[str, Any]) -> None:
        """T-54: `_meta`, `inputResponses` and `requestState` are left out."""
        assert request_binding("a", "m", params) == request_binding("a", "m", {**params, **retry})

    def test_only_the_top_level_is_left_out(self) -> None:
        """MRTR-7: an argument that happens to be called `_meta` counts."""
        first, second = ({"arguments": {"_meta": value}} for value in (1, 2))
        assert request_binding("a", "m", first) != request_binding("a", "m", second)

    @given(PARAMS)
    def test_the_order_of_keys_does_not_count(self, params: dict[str, Any]) -> None:
        def turned(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: turned(value[name]) for name in reversed(value)}
            return [turned(item) for item in value] if isinstance(value, list) else value

        assert request_binding("a", "m", params) == request_binding("a", "m", turned(params))

    def test_raw_json_and_the_same_mapping_bind_alike(self) -> None:
        raw = b' {"b" : [1, {"y":2,"x":1.0}], "_meta":{"t":1}, "a":"\\u0041"} '
        assert request_binding("a", "m", raw) == request_binding("a", "m", {"a": "A", "b": [1, {"x": 1.0, "y": 2}]})

    @given(PARAMS, PARAMS)
    def test_other_params_give_another_binding(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        """MRTR-7: equal bindings mean equal params, types included."""
        same = repr(sorted_deeply(first)) == repr(sorted_deeply(second))
        assert (request_binding("a", "m", first) == request_binding("a", "m", second)) is same

    def test_numbers_strings_and_literals_that_look_alike_are_told_apart(self) -> None:
        alike: list[Any] = [1, "1", 1.0, True, None, "null", [], {}, "", 0, -1, "true", [1], ["1"]]
        assert len({request_binding("a", "m", {"x": value}) for value in alike}) == len(alike)

    def test_principal_method_and_params_do_not_run_into_each_other(self) -> None:
        bindings = [
            request_binding(None, "m", {}),
            request_binding("", "m", {}),
            request_binding("null", "m", {}),
            request_binding('a","m', "m", {}),
            request_binding("a", 'm","m', {}),
            request_binding("am", "", {}),
            request_binding("", "am", {}),
        ]
        assert len(set(bindings)) == len(bindings)

    @pytest.mark.parametrize("raw", [b"", b"{", b'{"a":"\xff"}', b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"])
    def test_unreadable_params_are_refused(self, raw: bytes) -> None:
        with pytest.raises(InvalidParams):
            request_binding("a", "m", raw)


def sorted_deeply(value: Any) -> Any:
    """The same value with every mapping in the order of its keys."""
    if isinstance(value, dict):
        return {name: sorted_deeply(value[name]) for name in sorted(value)}
    return [sorted_deeply(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("keys", [32, [32], [None], [KEY, [1] * 32], {KEY: 1}, KEY, []], ids=repr)
def test_what_is_no_list_of_secrets_is_refused_without_repeating_it(keys: Any) -> None:
    """A number would make a key of as many zeros."""
    with pytest.raises(SetupError, match=r"^sealing (needs a list|key . must be bytes or str)") as caught:
        Keyring(keys)
    assert str(KEY) not in str(caught.value)
