"""What a peer may be asked follows from what it declared, and from nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import CapabilityNotSupported
from ferrule.protocol.capabilities import dotted, lacking_for, nested, require_client, server_offers
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities

FORM = {"message": "?", "mode": "form", "requestedSchema": {}}
PLAIN_FORM = {"message": "?", "requestedSchema": {}}
URL = {"message": "?", "mode": "url", "url": "https://x"}
SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 1}
WITH_TOOLS = {**SAMPLE, "tools": []}
WITH_CHOICE = {**SAMPLE, "toolChoice": {"mode": "none"}}

ELICIT, SAMPLING, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"


def client(declared: Any) -> ClientCapabilities:
    return msgspec.convert(declared, ClientCapabilities)


def server(declared: Any) -> ServerCapabilities:
    return msgspec.convert(declared, ServerCapabilities)


class TestAskingAClient:
    LACKING = (
        ({}, ELICIT, FORM, {"elicitation": {"form": {}}}),
        ({}, ELICIT, URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {}}, ELICIT, FORM, {}),
        ({"elicitation": {}}, ELICIT, PLAIN_FORM, {}),
        ({"elicitation": {}}, ELICIT, URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {"form": {}}}, ELICIT, PLAIN_FORM, {}),
        ({"elicitation": {"form": {}}}, ELICIT, URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {"url": {}}}, ELICIT, URL, {}),
        ({"elicitation": {"url": {}}}, ELICIT, FORM, {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}}}, ELICIT, PLAIN_FORM, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {}, "url": {}}}, ELICIT, URL, {}),
        ({}, SAMPLING, SAMPLE, {"sampling": {}}),
        ({}, SAMPLING, WITH_TOOLS, {"sampling": {"tools": {}}}),
        ({"sampling": {}}, SAMPLING, SAMPLE, {}),
        ({"sampling": {}}, SAMPLING, WITH_TOOLS, {"sampling": {"tools": {}}}),
        ({"sampling": {}}, SAMPLING, WITH_CHOICE, {"sampling": {"tools": {}}}),
        ({"sampling": {"context": {}}}, SAMPLING, WITH_TOOLS, {"sampling": {"tools": {}}}),
        ({"sampling": {"tools": {}}}, SAMPLING, WITH_TOOLS, {}),
        ({"sampling": {"tools": {}}}, SAMPLING, WITH_CHOICE, {}),
        ({"sampling": {}}, SAMPLING, {**SAMPLE, "includeContext": "none"}, {}),
        ({"sampling": {}}, SAMPLING, {**SAMPLE, "includeContext": "allServers"}, {"sampling": {"context": {}}}),
        ({"sampling": {"context": {}}}, SAMPLING, {**SAMPLE, "includeContext": "thisServer"}, {}),
        ({}, ROOTS, {}, {"roots": {}}),
        ({"roots": {}}, ROOTS, {}, {}),
        ({"roots": {"listChanged": False}}, ROOTS, {}, {}),
        ({"sampling": {}, "elicitation": {}}, ROOTS, {}, {"roots": {}}),
        ({}, "ping", {}, {}),
    )

    @pytest.mark.parametrize(("declared", "method", "params", "lacking"), LACKING)
    def test_a_question_needs_just_what_it_uses(self, declared: Any, method: str, params: Any, lacking: Any) -> None:
        """CAP-3 CAP-4 CAPN-05 CAPN-07 ELIC-2 SAMP-5 SAMP-7 MRTR-3: an object that is there means yes."""
        assert lacking_for(client(declared), method, params) == lacking
        if lacking:
            with pytest.raises(CapabilityNotSupported) as caught:
                require_client(client(declared), method, params)
            assert nested(caught.value.capability) == lacking
        else:
            require_client(client(declared), method, params)

    def test_what_a_client_says_of_other_things_is_no_capability(self) -> None:
        """CAPN-01 CAP-4 RPC-15: unknown keys neither help nor harm."""
        declared = client({"tools": {}, "resources": {}, "elicitate": {}, "extensions": {"com.example/x": {}}})
        assert lacking_for(declared, ROOTS, {}) == {"roots": {}}


class TestWritingThem:
    PATHS = (
        ("roots", {"roots": {}}),
        ("sampling.tools", {"sampling": {"tools": {}}}),
        ("a.b.c", {"a": {"b": {"c": {}}}}),
    )

    @pytest.mark.parametrize(("path", "required"), PATHS)
    def test_a_path_and_an_object_say_the_same(self, path: str, required: Any) -> None:
        """STL-6: what is required is written as a capabilities object."""
        assert nested(path) == required
        assert dotted(required) == path

    @given(st.lists(st.text(st.characters(exclude_characters="."), min_size=1), min_size=1, max_size=5))
    def test_each_undoes_the_other(self, names: list[str]) -> None:
        assert dotted(nested(".".join(names))) == ".".join(names)


FULL = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {},
    "completions": {},
    "logging": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
}

GATES = {
    "tools/list": "tools",
    "tools/call": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources.subscribe",
    "resources/unsubscribe": "resources.subscribe",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "completion/complete": "completions",
    "logging/setLevel": "logging",
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "initialize": "",
    "ping": "",
    "server/discover": "",
    "subscriptions/listen": "",
    "tasks/get": "tasks",
    "tasks/result": "tasks",
    "tasks/list": "tasks.list",
    "tasks/update": "tasks",
    "tasks/cancel": "tasks.cancel",
}


class TestAskingAServer:
    OFFERS = (
        ({}, "", True),
        ({}, "tools", False),
        ({"tools": {}}, "tools", True),
        ({"tools": {}}, "tools.list_changed", False),
        ({"tools": {"listChanged": False}}, "tools.list_changed", False),
        ({"tools": {"listChanged": True}}, "tools.list_changed", True),
        ({"resources": {}}, "resources", True),
        ({"resources": {}}, "resources.subscribe", False),
        ({"resources": {"subscribe": True}}, "resources.subscribe", True),
        ({"resources": {"subscribe": True}}, "resources.list_changed", False),
        ({}, "resources.subscribe", False),
        ({"completions": {}}, "completions", True),
        ({"logging": {}}, "logging", True),
        ({"prompts": {}}, "holograms", False),
        ({"tasks": {}}, "tasks", True),
        ({"tasks": {}}, "tasks.list", False),
        ({"tasks": {"cancel": {}}}, "tasks.cancel", True),
        ({"tasks": {"cancel": False}}, "tasks.cancel", False),
        ({"tasks": {"requests": {"tools": {"call": {}}}}}, "tasks.requests.tools.call", True),
        ({"tasks": {"requests": {"tools": {}}}}, "tasks.requests.tools.call", False),
        ({"tasks": {"requests": 1}}, "tasks.requests.tools.call", False),
    )

    @pytest.mark.parametrize(("declared", "capability", "offered"), OFFERS)
    def test_presence_means_yes_and_flags_must_be_true(self, declared: Any, capability: str, offered: bool) -> None:
        """CAP-3 CAPN-02 CAPN-11 CAPN-12: an empty object is a yes, a flag counts only when it is true."""
        assert server_offers(server(declared), capability) is offered

    def test_each_method_has_its_gate(self) -> None:
        """CAPN-10: which capability each method needs."""
        assert {name: row.capability for name, row in METHODS.items()} == GATES

    @pytest.mark.parametrize("method", [name for name, row in METHODS.items() if not row.by_client])
    def test_a_gate_is_open_with_everything_declared_and_shut_with_nothing(self, method: str) -> None:
        """CAPN-10 CAP-4: a client asks only for what was declared."""
        gate = METHODS[method].capability
        assert server_offers(server(FULL), gate)
        assert server_offers(server({}), gate) is (gate == "")

    def test_an_empty_server_declares_nothing(self) -> None:
        """CAPN-03: all capabilities are off by default."""
        assert msgspec.json.encode(ServerCapabilities()) == b"{}"
        assert msgspec.json.encode(ClientCapabilities()) == b"{}"

    @pytest.mark.parametrize("wanted", ["thisServer", "allServers"])
    def test_context_of_servers_is_asked_for_only_from_those_who_declare_it(self, wanted: str) -> None:
        """SAMP-7: the default asks for none."""
        plain = msgspec.convert({"sampling": {}}, ClientCapabilities)
        able = msgspec.convert({"sampling": {"context": {}}}, ClientCapabilities)
        asked = {"messages": [], "maxTokens": 1, "includeContext": wanted}
        assert lacking_for(plain, "sampling/createMessage", asked) == {"sampling": {"context": {}}}
        assert lacking_for(able, "sampling/createMessage", asked) == {}
        assert lacking_for(plain, "sampling/createMessage", {**asked, "includeContext": "none"}) == {}
        assert lacking_for(plain, "sampling/createMessage", {"messages": [], "maxTokens": 1}) == {}
