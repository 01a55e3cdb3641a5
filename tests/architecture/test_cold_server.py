"""What a plain server on stdio has loaded when it answers: nothing that only other servers use."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest
from source_tree import PACKAGE, modules

from ferrule.protocol.handshake import REVISIONS

SERVER = """
import sys

before = set(sys.modules)  # a virtual environment may load things of its own

from ferrule import Server

app = Server("cold")

@app.tool
async def loaded() -> list[str]:
    return [name for name in sys.modules if name not in before]

@app.resource("notes://today")
def today() -> str:
    return "nothing"

app.run()
"""

ROOMS = {
    "": "codes errors",
    "budgets": "account allocator bounds collector process shares weight",
    "identity": "principal verifier",
    "protocol": "call capabilities era foreign handshake needs seal session stateless tasks trims",
    "runtime": "dispatch holdings link requests sessionless",
    "schema": "apps completion content elicitation keys lifecycle methods mirrored model notices prompts"
    " resources roots rounds sampling tasks tools wrapped",
    "server": "foreign_names server settings",
    "server.calls": "client_requests context execution kept_results media oversize results services slots"
    " streams threads tool_results",
    "server.extensions": "extension",
    "server.functions": "arguments binder depends docstrings schemas signatures",
    "server.functions.types": "extra_types pydantic_types readable records stand_in unions",
    "server.hosting": "builtins entrance host lifespans links listeners local principals progress registration"
    " runner tree",
    "server.middleware": "hooks stack",
    "server.notifications": "changes subscriptions",
    "server.offers": "catalogue completions descriptions entry mount_point offers prompts"
    " resource_entry resources switches tool_entry tools versions visibility",
    "settings": "option sources",
    "supervision": "backoff child counted_lifetime event_loop group logs restart scope signals start supervisor",
    "transports": "backpressure contract registry shutdown stream unfinished",
    "transports.process": "pipe stdio",
    "validation": "violations",
    "wire": "channel codec framing messages",
}
"""What of ours is loaded; a module that only some servers need does not belong here, but where they come to need it."""

STRANGERS = (
    *("cryptography", "httptools", "jsonschema_rs", "pydantic", "yaml"),
    *("difflib", "email", "hashlib", "http", "ipaddress", "json", "mimetypes", "pathlib", "random", "secrets"),
    *("tempfile", "urllib.parse"),
)
"""What of others' a server can do without until somebody asks for more; some of it takes half a megabyte."""

ON_THE_WAY_OF_REQUESTS = {"server/calls/results.py", "server/offers/resources.py"}
"""Where a regular expression is compiled at import: each takes a tenth of a millisecond of every start."""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Start a plain server, shake hands, and ask it what it has loaded."""
    version = next(iter(REVISIONS))
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    said = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "loaded", "arguments": {}}},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in said)
    out = subprocess.run([sys.executable, "-c", SERVER], input=lines, capture_output=True, text=True, check=True).stdout
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    return set(answers[2]["result"]["structuredContent"]["result"])


def test_a_plain_server_loads_of_ours_only_what_every_server_needs(loaded: set[str]) -> None:
    rooms = {f"{PACKAGE}.{room}".rstrip(".") for room in ROOMS}
    known = rooms | {
        f"{PACKAGE}.{room}.{each}".replace("..", ".") for room, all_ in ROOMS.items() for each in all_.split()
    }
    assert sorted(name for name in loaded if name.partition(".")[0] == PACKAGE and name not in known) == []


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_plain_server_does_without(loaded: set[str], stranger: str) -> None:
    assert stranger not in loaded


def test_only_what_requests_need_at_once_compiles_regular_expressions_at_import(loaded: set[str]) -> None:
    compiling = {module.place for module in modules() if module.name in loaded and _compiles(module.tree)}
    assert compiling == ON_THE_WAY_OF_REQUESTS


def _compiles(tree: ast.Module) -> bool:
    """Whether a statement outside functions and classes calls `re.compile`."""
    plain = [each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign | ast.Expr)]
    calls = [node for each in plain for node in ast.walk(each) if isinstance(node, ast.Call)]
    return any(ast.unparse(call.func) == "re.compile" for call in calls)
