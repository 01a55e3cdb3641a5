"""Receipts of a server: one for each request, of digests, and calls go on when they cannot be kept."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from raw_wires import INITIALIZE, serving

from ferrule import (
    Client,
    Forbidden,
    Http,
    PeerError,
    Principal,
    Receipts,
    RecordRule,
    RequestFacts,
    Server,
    SetupError,
    ToolError,
    Unauthorized,
    Verifier,
)
from ferrule.telemetry.exposition import expose
from ferrule.telemetry.receipt_files import files_in
from ferrule.telemetry.receipt_writer import ReceiptWriter, place_of, verify_place
from ferrule.telemetry.receipts import checker
from ferrule.testing import ERAS

PATIENCE = 60.0
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SECRET = bytes(range(32))


def new_app(receipts: Any, **options: Any) -> Server:
    app = Server("kept", receipts=receipts, **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool
    async def forbidden() -> str:
        raise Forbidden("not for you")

    return app


def records(folder: Path, kind: str = "") -> list[dict[str, Any]]:
    """Return the records of a folder, or those of a kind."""
    found = []
    for path in files_in(folder):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            if kind in ("", record["kind"]):
                found.append(record)
    return found


def calls(folder: Path) -> list[dict[str, Any]]:
    """Return the records of calls of tools."""
    return [record for record in records(folder) if record.get("method") == "tools/call"]


async def until(condition: Any) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("era", ERAS)
def test_each_request_leaves_one_receipt(tmp_path: Path, era: Any) -> None:
    """OBSV-03"""

    async def main() -> None:
        app = new_app(tmp_path / "kept", version="3")
        async with Client(app, mode=era, name="host", version="2") as client:
            await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": f"00-{TRACE}-{'1' * 16}-01"})
            with pytest.raises(ToolError):
                await client.call_tool("fail")
            with pytest.raises(PeerError):
                await client.call_tool("nosuch")
            with pytest.raises(PeerError):
                await client.request("no/such")
            await client.list_tools()
            await client.ping()

    asyncio.run(main())
    assert all(found.ok for found in verify_place(place_of(tmp_path / "kept")).values())
    found = [
        (record.get("method"), record.get("target"), record.get("outcome")) for record in records(tmp_path / "kept")
    ]
    opening = "initialize" if era == "handshake" else "server/discover"
    asked = [
        ("tools/call", "add", "ok"),
        ("tools/call", "fail", "tool_error"),
        ("tools/call", "nosuch", "error"),
        ("no/such", None, "refused"),
        ("tools/list", None, "ok"),
    ]
    if era == "stateless":
        asked.append((opening, None, "ok"))  # how this era pings
    assert found == [(None, None, None), (opening, None, "ok"), *asked]
    added, _, unknown = calls(tmp_path / "kept")
    assert added["kind"] == "call"
    assert added["peer"] == {"name": "host", "version": "2"}
    assert added["trace"] == TRACE
    assert added["bytes"][0] == len(b'{"a":1,"b":2}')
    assert added["ms"] > 0
    assert (added["code"], unknown["code"]) == (None, -32602)
    assert "result" not in unknown


def test_digests_have_a_key_that_only_the_owner_reads(tmp_path: Path) -> None:
    """OBSV-03"""

    async def main(receipts: Any) -> dict[str, Any]:
        async with Client(new_app(receipts)) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        [call] = calls(Path(receipts.folder))
        return call

    arguments = b'{"a":1,"b":2}'
    own = asyncio.run(main(Receipts(tmp_path / "own")))
    key = tmp_path / "own" / "digest.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert own["args"] == "hmac-sha256:" + hmac.digest(key.read_bytes(), arguments, "sha256").hex()
    again = asyncio.run(main(Receipts(tmp_path / "given", digest_key="a key of some length")))
    assert again["args"] == "hmac-sha256:" + hmac.digest(b"a key of some length", arguments, "sha256").hex()
    assert not (tmp_path / "given" / "digest.key").exists()
    plain = asyncio.run(main(Receipts(tmp_path / "plain", keyed=False)))
    assert plain["args"] == "sha256:" + hashlib.sha256(arguments).hexdigest()


def test_contents_are_kept_by_rule_and_redacted(tmp_path: Path) -> None:
    rules = [RecordRule(tools=["a*"], arguments=True, result=True, redact=["$.b", "$.content"])]

    async def main() -> None:
        async with Client(new_app(Receipts(tmp_path, record=rules))) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            with pytest.raises(ToolError):
                await client.call_tool("fail")

    asyncio.run(main())
    added, failed = calls(tmp_path)
    assert added["content"]["arguments"] == {"a": 1, "b": "[redacted]"}
    assert added["content"]["result"]["content"] == "[redacted]"
    assert added["content"]["result"]["structuredContent"] == {"result": 3}
    assert "content" not in failed
    assert all(found.ok for found in verify_place(place_of(tmp_path)).values())


class Tokens(Verifier):
    """Knows one token."""

    def verify(self, facts: RequestFacts) -> Principal | Unauthorized:
        if facts.headers.get("authorization") != "Bearer secret-token":
            return Unauthorized()
        return Principal(issuer="https://login", subject="ada", client="cli")


def test_a_receipt_says_who_called_in_which_session_and_shows_no_secret(tmp_path: Path) -> None:
    """SES-12"""

    async def main() -> str:
        app = new_app(tmp_path, auth=Tokens())
        listener = Http(port=0)
        async with serving(app, listener), httpx.AsyncClient() as http:
            url = f"http://127.0.0.1:{listener.address[1]}/mcp"
            headers = {"accept": "application/json, text/event-stream", "authorization": "Bearer secret-token"}
            headers["traceparent"] = f"00-{TRACE}-{'1' * 16}-00"
            opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
            headers["mcp-session-id"] = (await http.post(url, json=opening, headers=headers)).headers["mcp-session-id"]
            params = {"name": "forbidden", "arguments": {}}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            await http.post(url, json=call, headers=headers)
            return headers["mcp-session-id"]

    session = asyncio.run(main())
    [call] = calls(tmp_path)
    assert call["who"] == {"iss": "https://login", "sub": "ada", "client": "cli"}
    assert call["session"] == session[:8]
    assert call["kind"] == "denial"
    assert call["trace"] == TRACE
    written = b"".join(path.read_bytes() for path in files_in(tmp_path))
    assert session.encode() not in written
    assert b"secret-token" not in written


def test_a_key_seals_the_chain(tmp_path: Path) -> None:
    """OBSV-03"""
    key = Ed25519PrivateKey.from_private_bytes(SECRET)
    pem = tmp_path / "seal.pem"
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    async def main(receipts: Receipts) -> None:
        async with Client(new_app(receipts)) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    check = checker(key.public_key().public_bytes_raw())
    for name, given in (("file", pem), ("bytes", SECRET)):
        folder = tmp_path / name
        asyncio.run(main(Receipts(folder, signing_key=given)))
        [found] = verify_place(place_of(folder), check=check).values()
        assert (found.ok, found.seals) == (True, 1)
        [opening] = records(folder, "open")
        public = key.public_key().public_bytes_raw()
        assert opening["about"]["key"] == hashlib.sha256(public).hexdigest()[:16]


def test_the_chain_goes_on_in_the_next_run_of_the_server(tmp_path: Path) -> None:
    """OBSV-03"""

    app = new_app(tmp_path)

    async def main() -> None:
        for _ in range(2):
            async with Client(app) as first, Client(app) as second:
                await first.call_tool("add", {"a": 1, "b": 2})
                await second.call_tool("add", {"a": 1, "b": 2})

    asyncio.run(main())
    asyncio.run(main())
    assert len(files_in(tmp_path)) == 4
    assert len(calls(tmp_path)) == 8
    assert all(found.ok for found in verify_place(place_of(tmp_path)).values())


# -- when receipts cannot be kept


class StuckDisk:
    """Lets the thread that writes wait until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released = threading.Event()
        self.reached = threading.Event()
        write = ReceiptWriter._write

        def stuck(files: ReceiptWriter, lines: list[bytes], *, final: bool) -> None:
            self.reached.set()
            self.released.wait(PATIENCE)
            write(files, lines, final=final)

        monkeypatch.setattr(ReceiptWriter, "_write", stuck)


def test_calls_go_on_while_the_disk_hangs_and_what_is_lost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call waits for a disk; the gap is in the chain."""
    disk = StuckDisk(monkeypatch)

    async def main() -> tuple[int, float, float]:
        app = new_app(Receipts(tmp_path, queue=20, commit_interval=0.001))
        log = app.host.receipts
        assert log is not None
        async with Client(app) as client:
            before = await cpu_of_calls(client, 300)
            await until(disk.reached.is_set)
            during = await cpu_of_calls(client, 300)
            assert log.lost >= 200
            disk.released.set()
            await until(lambda: log.written)
            await client.call_tool("add", {"a": 1, "b": 2})
        return log.lost, before, during

    lost, before, during = asyncio.run(main())
    assert during < 5 * before + 0.001
    assert sum(record["about"]["lost"] for record in records(tmp_path, "gap")) == lost
    assert all(found.ok for found in verify_place(place_of(tmp_path)).values())


async def cpu_of_calls(client: Client, count: int) -> float:
    """Return what 99 of 100 calls take at most, in seconds of CPU time of this thread."""
    taken = []
    for _ in range(count):
        began = time.thread_time()
        await client.call_tool("add", {"a": 1, "b": 2})
        taken.append(time.thread_time() - began)
    return sorted(taken)[count * 99 // 100]


def test_with_required_receipts_calls_are_refused_while_the_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = StuckDisk(monkeypatch)

    async def main() -> None:
        app = new_app(Receipts(tmp_path, queue=20, commit_interval=0.001, required=True))
        log = app.host.receipts
        assert log is not None
        async with Client(app, mode="handshake") as client:
            outcomes = [await outcome_of(client) for _ in range(100)]
            assert "Overloaded: receipts of calls are required here, and cannot be kept now" in outcomes[-1]
            await client.ping()
            disk.released.set()
            await until(lambda: log.written)
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        # Of a call that was refused there may be no receipt; of one that ran there is.
        ran = [record for record in calls(tmp_path) if record["outcome"] == "ok"]
        assert len(ran) >= 20

    asyncio.run(main())


async def outcome_of(client: Client) -> str:
    """Call a tool; return the text of its result or of the error."""
    try:
        return (await client.call_tool("add", {"a": 1, "b": 2})).text
    except PeerError as error:
        return str(error)


FULL_DISK = """
import asyncio, resource, signal, sys
from ferrule import Client, Receipts, Server
from ferrule.errors import PeerError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main(folder, required):
    app = Server("kept", receipts=Receipts(folder, commit_interval=0.001, required=required))

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    log = app.host.receipts
    async with Client(app) as client:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        answered = refused = 0
        while not log.lost:
            try:
                await client.call_tool("add", {"a": 1, "b": 2})
                answered += 1
            except PeerError:
                refused += 1
            await asyncio.sleep(0.001)
        for _ in range(50):
            try:
                await client.call_tool("add", {"a": 1, "b": 2})
                answered += 1
            except PeerError:
                refused += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        while log.failure:
            if not required:
                await client.call_tool("add", {"a": 1, "b": 2})
            await asyncio.sleep(0.01)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    print(refused, log.lost > 0)

asyncio.run(main(sys.argv[1], sys.argv[2] == "required"))
"""


@pytest.mark.parametrize("required", [False, True])
def test_a_full_disk_loses_receipts_and_no_calls_unless_they_are_required(tmp_path: Path, required: bool) -> None:
    """A limit of the operating system stands for the disk, in a process of its own."""
    folder = tmp_path / "kept"
    program = [sys.executable, "-c", FULL_DISK, str(folder), "required" if required else ""]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    refused, lost = done.stdout.split()
    assert lost == "True"
    assert (int(refused) >= 50) == required
    assert (int(refused) == 0) != required
    assert "receipts cannot be written" in done.stderr
    assert all(found.ok for found in verify_place(place_of(folder)).values())
    assert records(folder, "gap")
    assert calls(folder)[-1]["outcome"] == "ok"


def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def main(receipts: Any) -> None:
        async with Client(new_app(receipts)):
            pytest.fail("it began")

    with pytest.raises(SetupError, match="receipts cannot be written to"):
        asyncio.run(main(tmp_path / "file" / "kept"))


def test_two_servers_do_not_write_into_one_folder(tmp_path: Path) -> None:
    async def main() -> None:
        async with Client(new_app(tmp_path)):
            with pytest.raises(SetupError, match="give each its own folder"):
                async with Client(new_app(tmp_path)):
                    pass

    asyncio.run(main())


def test_a_lifespan_that_fails_lets_go_of_the_folder(tmp_path: Path) -> None:
    begun = 0

    async def lifespan(server: Server) -> Any:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise RuntimeError("not yet")
        yield

    async def main() -> None:
        app = new_app(tmp_path, lifespan=lifespan)
        with pytest.raises(RuntimeError, match="not yet"):
            async with Client(app):
                pass
        async with Client(app) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    asyncio.run(main())
    assert len(calls(tmp_path)) == 1


def test_a_start_that_is_cancelled_lets_go_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread begins to write, and goes on when nobody waits for it any more."""
    began = threading.Event()
    may_go_on = threading.Event()
    start = ReceiptWriter.start

    def start_late(writer: ReceiptWriter) -> None:
        began.set()
        assert may_go_on.wait(PATIENCE)
        start(writer)

    app = new_app(tmp_path)

    async def use() -> None:
        async with Client(app) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(ReceiptWriter, "start", start_late)
            user = asyncio.create_task(use())
            assert await asyncio.to_thread(began.wait, PATIENCE)
            user.cancel()
            await asyncio.sleep(0)
            may_go_on.set()
            await asyncio.wait([user])
            assert user.cancelled()
        await use()

    asyncio.run(main())


def test_metrics_count_receipts(tmp_path: Path) -> None:
    async def main() -> str:
        app = new_app(Receipts(tmp_path, commit_interval=0.001), metrics=True)
        log = app.host.receipts
        assert log is not None
        async with Client(app, mode="stateless") as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            await until(lambda: log.written == 2)
            return expose(app.metrics).decode()

    text = asyncio.run(main())
    assert "ferrule_receipts_total 2" in text
    assert "ferrule_receipts_lost_total 0" in text
    assert 'gen_ai_tool_name="add"' in text


# -- options


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (5, "receipts must be a folder or Receipts"),
        ("", "folder must be a path"),
        ({"folder": "x", "requird": True}, "requird"),
        ({"folder": "x", "queue": 0}, "queue must be more than 0, not 0"),
        ({"folder": "x", "keep_days": -1}, "keep_days must be more than 0"),
        ({"folder": "x", "commit_interval": "1"}, "commit_interval must be more than 0"),
        ({"folder": "x", "digest_key": "short"}, "digest_key must have 16 bytes or more"),
        ({"folder": "x", "record": ["a"]}, "record must be a list of RecordRule"),
        ({"folder": "x", "record": [{"tool": "a"}]}, "tool"),
        ({"folder": "x", "record": [{"tools": ["a"], "redact": ["card"]}]}, "is not a path to redact"),
        ({"folder": "x", "signing_key": "/no/such/key.pem"}, "the key in /no/such/key.pem cannot be read"),
        ({"folder": "x", "signing_key": b"short"}, "is not an Ed25519 key"),
    ],
)
def test_what_cannot_be_is_refused_when_the_server_is_made(given: Any, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        Server("kept", receipts=given)


def test_receipts_may_be_given_as_a_table_of_options(tmp_path: Path) -> None:
    given = {"folder": str(tmp_path), "record": [{"tools": ["add"], "arguments": True}], "node": "a1"}

    async def main() -> None:
        async with Client(new_app(given)) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    asyncio.run(main())
    [call] = calls(tmp_path)
    assert call["content"] == {"arguments": {"a": 1, "b": 2}}
    assert call["node"] == "a1"


def test_without_the_option_nothing_of_receipts_is_loaded() -> None:
    program = (
        "import sys; from ferrule import Server; Server('x'); print('ferrule.telemetry.receipt_log' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "False"
