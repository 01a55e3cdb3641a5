"""What carriers and rules know of each other is declared: nothing is looked for by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from source_tree import modules

from ferrule.transports.registry import TRANSPORTS
from ferrule.wire.channel import ChannelDefaults, MessageReceiver, Traits

OPTIONAL = {
    *(name for name in vars(ChannelDefaults) if not name.startswith("__")),
    *(name for name in vars(MessageReceiver) if not name.startswith("_")),
    *Traits.__struct_fields__,
}
"""The members a channel, its traits or a receiver need not write itself."""

SEE_CHANNELS = ("runtime", "transports", "server", "client", "testing")
NAME_NO_TRANSPORT = (
    "server/hosting/links.py",
    "cli/main.py",
    "cli/run.py",
    "client/link/connector.py",
    "client/targets.py",
)


def lookups(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which an optional member, or any of something called a channel, is looked for by its name."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 2):
            continue
        if node.func.id not in {"getattr", "hasattr"}:
            continue
        name = node.args[1]
        optional = isinstance(name, ast.Constant) and name.value in OPTIONAL
        if optional or "channel" in ast.unparse(node.args[0]).lower():
            yield node.lineno


def words(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module that are more than prose: those without a blank."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value


def test_the_contract_has_optional_members() -> None:
    assert {
        "release",
        "withdrawn",
        "send_with",
        "agreed",
        "hear_gaps",
        "stand",
        "congested",
        "context",
        "traits",
    } <= OPTIONAL
    assert {"patient", "watches_itself", "message_received"} <= OPTIONAL


def test_no_member_of_a_channel_is_looked_for_by_its_name() -> None:
    found = [
        f"{module.place}:{line}" for module in modules() if module.part in SEE_CHANNELS for line in lookups(module.tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'getattr(channel, "anything", None)',
        'hasattr(call.channel, "release")',
        'getattr(way, "always_answers", False)',
        'getattr(receiver, "message_received", None)',
    ],
)
def test_such_a_look_would_be_found(line: str) -> None:
    assert list(lookups(ast.parse(line))) == [1]


def test_only_the_table_names_transports() -> None:
    options_of_clients = {"http", "tcp", "websocket"}
    names = {*TRANSPORTS, *TRANSPORTS.prefixes, "memory"} - options_of_clients
    found = {
        (module.place, word)
        for module in modules()
        if module.place in NAME_NO_TRANSPORT
        for word in words(module.tree)
        if word in names
    }
    assert found == set()


def test_a_client_and_a_server_know_no_class_of_a_transport() -> None:
    """Beside what everyone needs: the contract, the table, the process and the memory that objects are reached by."""
    allowed = {"contract", "registry", "keywords", "memory", "process"}
    found = [
        (module.place, found.module)
        for module in modules()
        for found in module.imports()
        if module.part in {"cli", "client", "server"}
        and found.module.startswith("ferrule.transports.")
        and not found.typing_only
        and found.module.split(".")[2] not in allowed
    ]
    assert found == []
