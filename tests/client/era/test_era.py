"""What a client decides by protocol generation; the same questions are put to both."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from ferrule.client.era.contract import ClientEra, declared
from ferrule.client.era.handshake import HandshakeEra
from ferrule.client.era.stateless import StatelessEra
from ferrule.errors import CapabilityNotSupported, InvalidAnswer, MethodNotFound, MissingCapability, PeerError
from ferrule.protocol.call import Note, Peer
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities, Implementation, RootsCapability
from ferrule.schema.tasks import TASKS_EXTENSION, Task

TASKS = {TASKS_EXTENSION: {}}
WHO = Implementation(name="c", version="1")


def new_era(name: str, **capabilities: Any) -> ClientEra:
    if name == "handshake":
        return HandshakeEra()
    return StatelessEra(STATELESS, ClientCapabilities(**capabilities), WHO)


class Told:
    """Writes down what an era wants done."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    async def request(self, method: str, uri: str) -> None:
        self.done.append((method, uri))

    async def request_all(self) -> None:
        self.done.append("each")

    async def listen(self) -> None:
        self.done.append("listen")


class Follower:
    """A task that is followed."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def listen(self, state: Task) -> None:
        self.done.append("listen")

    def fetch_result(self) -> None:
        self.done.append("fetch")

    async def fetched(self) -> Raw:
        return Raw(b'"fetched"')


async def test_how_a_server_is_told_what_is_wanted():
    said = {}
    for name in ("handshake", "stateless"):
        era, told = new_era(name), Told()
        await era.subscribe("a://b", told)
        await era.unsubscribe("a://b", told)
        await era.watch(told)
        await era.resubscribe(told)
        said[name] = told.done
    assert said["handshake"] == [("resources/subscribe", "a://b"), ("resources/unsubscribe", "a://b"), "each"]
    assert said["stateless"] == ["listen"] * 4


@pytest.mark.parametrize(
    ("method", "eras"),
    [
        ("ping", ["handshake"]),
        ("logging/setLevel", ["handshake"]),
        ("server/discover", ["stateless"]),
        ("subscriptions/listen", ["stateless"]),
        ("tools/call", ["handshake", "stateless"]),
    ],
)
def test_which_methods_exist(method, eras):
    row = METHODS[method]
    revisions = {"handshake": HANDSHAKE, "stateless": STATELESS}
    assert [name for name in revisions if new_era(name).has(row, revisions[name])] == eras
    assert new_era("stateless").may_ask(row) is (method == "tools/call")
    assert not new_era("handshake").may_ask(row)


async def test_a_log_level_is_said_once_or_with_every_request():
    asked = []

    async def ask(method: str, params: dict[str, Any]) -> Raw:
        asked.append((method, params))
        return Raw(b"{}")

    await new_era("handshake").set_level("error", ask)
    assert asked == [("logging/setLevel", {"level": "error"})]
    era = new_era("stateless")
    await era.set_level("error", ask)
    assert len(asked) == 1
    assert b'"error"' in bytes(era.introduction.plain)
    assert b'"error"' in bytes(era.introduced(True).plain)


def test_a_request_may_say_for_itself_whether_a_task_may_be_the_answer():
    for extensions in (None, TASKS):
        era = new_era("stateless", extensions=extensions)
        said = {tasks: TASKS_EXTENSION.encode() in bytes(era.introduced(tasks).plain) for tasks in (None, True, False)}
        assert said == {None: extensions is not None, True: True, False: False}


def test_only_results_of_the_stateless_era_have_kinds():
    assert [new_era("stateless").knows_kind(kind) for kind in (None, "complete", "vendor")] == [True, True, False]
    assert new_era("handshake").knows_kind("vendor")


def test_changes_of_roots_are_declared_in_a_handshake_only():
    capabilities = ClientCapabilities(roots=RootsCapability(list_changed=True), extensions={"a.b/c": {}, **TASKS})
    assert declared(capabilities, HANDSHAKE, without=TASKS).extensions == {"a.b/c": {}}
    assert declared(capabilities, HANDSHAKE).roots.list_changed
    era = StatelessEra(STATELESS, capabilities, None)
    said = json.loads(bytes(era.introduction.plain))["io.modelcontextprotocol/clientCapabilities"]
    assert said["roots"] == {}
    assert set(said["extensions"]) == {"a.b/c", TASKS_EXTENSION}


def test_a_notification_of_a_subscription_that_is_over_is_stale():
    params = Raw(json.dumps({"_meta": {"io.modelcontextprotocol/subscriptionId": 7}}).encode())
    note = Note("notifications/tools/list_changed", params, None, None)  # type: ignore[arg-type]
    assert new_era("stateless").is_stale(note, {8: None})
    assert not new_era("stateless").is_stale(note, {7: None})
    assert not new_era("handshake").is_stale(note, {8: None})


async def test_what_a_task_is_and_how_it_ends():
    state = {"taskId": "t", "status": "working", "resultType": "task"}
    flat, wrapped = (Raw(json.dumps(value).encode()) for value in (state, {"task": state}))
    assert new_era("stateless").created_task(flat).task_id == "t"
    assert new_era("stateless").created_task(wrapped) is None
    assert new_era("handshake").created_task(wrapped).task_id == "t"
    assert new_era("handshake").created_task(flat) is None
    assert new_era("handshake").task_members(2.5) == {"task": {"ttl": 2500}}
    assert new_era("handshake").task_members(True) == {"task": {}}
    assert new_era("stateless").task_members(2.5) == {}
    asking = Task(task_id="t", status="input_required")
    for name, done in (("handshake", ["fetch"]), ("stateless", ["listen"])):
        follower = Follower()
        new_era(name).follow(follower, asking)
        assert follower.done == done
    ended = Task(task_id="t", status="completed", result=Raw(b"{}"))
    assert bytes(await new_era("stateless").task_outcome(Follower(), ended)) == b"{}"
    assert bytes(await new_era("handshake").task_outcome(Follower(), ended)) == b'"fetched"'
    with pytest.raises(InvalidAnswer, match="has no result"):
        await new_era("stateless").task_outcome(Follower(), Task(task_id="t", status="completed"))


async def test_whether_a_call_must_be_a_task():
    async def is_listed_so() -> bool:
        return True

    missing = {"requiredCapabilities": {"extensions": TASKS}}
    named = PeerError(MissingCapability.code, "no", missing)
    unknown = PeerError(MethodNotFound.code, "no", None)
    offering = Peer(HANDSHAKE, ServerCapabilities(tasks={"requests": {"tools": {"call": {}}}}))
    silent = Peer(HANDSHAKE, ServerCapabilities())
    assert await new_era("stateless").demands_task(named, silent, is_listed_so)
    assert not await new_era("stateless").demands_task(unknown, offering, is_listed_so)
    assert await new_era("handshake").demands_task(unknown, offering, is_listed_so)
    assert not await new_era("handshake").demands_task(unknown, silent, is_listed_so)
    assert not await new_era("handshake").demands_task(named, offering, is_listed_so)
    for name in ("handshake", "stateless"):
        with pytest.raises(CapabilityNotSupported):
            new_era(name).require_tasks(silent)
