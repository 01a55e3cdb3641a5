"""The form of metadata keys and extension names."""

from __future__ import annotations

import pytest

from ferrule import Client, Server, SetupError
from ferrule.schema.keys import check_extensions, check_keys, is_key, is_reserved


@pytest.mark.parametrize("key", ["name", "com.example/name", "a/b", "x-y.z1/a.b_c-d", "com.example/", "a1", "A.B/c"])
def test_a_key_is_an_optional_prefix_and_a_name(key: str) -> None:
    """META-2"""
    assert is_key(key)


@pytest.mark.parametrize(
    "key", ["/name", ".a/b", "a./b", "1a/b", "a-/b", "-a/b", "a/b/c", "a b", "a/_b", "a/b-", "_x", "ä/b", "com..x/y"]
)
def test_a_key_of_another_form_is_refused(key: str) -> None:
    """META-2"""
    assert not is_key(key)
    with pytest.raises(SetupError, match="is no `_meta` key"):
        check_keys([key], "here")


@pytest.mark.parametrize(
    "key",
    ["io.modelcontextprotocol/x", "dev.mcp/x", "com.mcp.tools/x", "mcp.dev/x", "modelcontextprotocol.io/x", "baggage"],
)
def test_no_key_is_made_under_a_reserved_prefix(key: str) -> None:
    """META-3: the second label reserves it in newer revisions, any label followed by another in older ones."""
    assert is_reserved(key)
    with pytest.raises(SetupError, match="reserved for the protocol"):
        check_keys([key], "here")


@pytest.mark.parametrize("key", ["com.example.mcp/x", "com.example/mcp", "example/x", "x"])
def test_other_keys_are_free(key: str) -> None:
    """META-3"""
    assert not is_reserved(key)
    check_keys([key], "here")


def test_a_tool_with_a_reserved_metadata_key_is_refused_when_it_is_registered() -> None:
    """META-3"""
    app = Server("keys")
    with pytest.raises(SetupError, match="reserved"):
        app.add_tool(lambda: "x", name="x", meta={"io.modelcontextprotocol/mine": 1})
    app.add_tool(lambda: "x", name="x", meta={"com.example/mine": 1})


@pytest.mark.parametrize("name", ["noprefix", "/x", "com.example/", "com.example/-x"])
def test_an_extension_is_named_with_a_prefix(name: str) -> None:
    """EXT-1"""
    with pytest.raises(SetupError, match="not a valid extension name"):
        check_extensions([name], "here")
    with pytest.raises(SetupError, match="not a valid extension name"):
        Server("x", extensions={name: {}})
    with pytest.raises(SetupError, match="not a valid extension name"):
        Client(Server("x"), extensions={name: {}})


def test_extensions_are_off_until_declared_and_then_an_empty_object_means_supported() -> None:
    """EXT-1, EXT-3"""
    assert Server("x").host.capabilities.extensions is None
    assert Server("x", extensions={"com.example/a": {}}).host.capabilities.extensions == {"com.example/a": {}}
    assert Client(Server("x")).answering.capabilities.extensions is None
    client = Client(Server("x"), extensions={"com.example/a": {}})
    assert client.answering.capabilities.extensions == {"com.example/a": {}}
