"""Every error in docs/guides/troubleshooting.md is provoked, and has the text that heads its part."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import doc_pages
import pytest

from ferrule import Http, Server

PAGE = doc_pages.PROJECT / "docs" / "guides" / "troubleshooting.md"
HEADINGS = re.findall(r"^### `(.*)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

FILES = {
    "server.py": """\
from ferrule import Server

app = Server("hello")


@app.tool
def add(a: int, b: int) -> int:
    return a + b


@app.tool
def boom() -> int:
    raise ValueError("secret")
""",
    "empty.py": "",
    "two.py": "from ferrule import Server\na = Server('a')\nb = Server('b')\n",
    "missing.py": "import nothing_here\n",
    "typo.py": "from ferrule import Server\napp = Server('a', verison='1')\n",
    "dies.py": "raise SystemExit(3)\n",
    "silent.py": "import time\ntime.sleep(60)\n",
    "none.json": '{"mcpServers": {}}',
    "two.json": '{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}',
    "bad/ferrule.toml": "[run\n",
    "numbers/ferrule.toml": "[run]\nfile = '../server.py'\ntransport = 'http'\n[http]\nport = 'many'\n",
}

COMMANDS = [
    "run empty.py",
    "run two.py",
    "run missing.py",
    "run typo.py",
    "run nowhere.py",
    "run bad",
    "run server.py --transport http --port {taken}",
    "run server.py --transport http --port 0 --host 0.0.0.0",
    "run server.py --transport htp",
    "list http://127.0.0.1:{free}/mcp",
    "list http://no-such-host.invalid/mcp",
    "list -- no-such-program",
    "list -- python dies.py",
    "list --timeout 0.5 -- python silent.py",
    "list nowhere",
    "list none.json",
    "list two.json",
    "call server.py ad a=1",
    "call server.py add a=1",
    "call server.py add a=x b=2",
    "call server.py add a=1 b=2 c=3",
    "call server.py boom",
    "read server.py notes://x",
    "run numbers",
]


def pattern(heading: str) -> re.Pattern[str]:
    """Return what a heading stands for: `…` is anything, and backquotes cannot stand in a heading."""
    return re.compile(
        ".+".join(map(re.escape, heading.replace("'app = ", "`app = ").split("…"))).replace("\\)'", "\\)`")
    )


MATCHES = {heading: pattern(heading) for heading in HEADINGS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trouble")
    for name, text in FILES.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    return made


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """A port that is taken, and one that is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield {"taken": taken.getsockname()[1], "free": bound.getsockname()[1]}


provoked: list[str] = []
"""The headings that were seen so far."""


def compare(said: str) -> None:
    """Find the heading of an error, and remember that it was seen."""
    found = [heading for heading, match in MATCHES.items() if match.search(said)]
    assert found, f"no part of {PAGE.name} is about: {said}"
    assert "Traceback" not in said.partition("the tool failed")[0].partition("the tool boom failed")[0]
    provoked.extend(found)


RUN_EACH = """
import json, os, sys
from ferrule.cli.main import main
pids = []
for number, words in enumerate(json.loads(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(f"{number}.err", os.O_WRONLY | os.O_CREAT), 2)
        main(words.split())
        os._exit(0)
    pids.append(pid)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]))
"""
"""Runs each command in a process of its own, all at once: a fork has imported nearly all it needs already."""


def test_each_command_fails_with_a_text_of_the_page(folder: Path, ports: dict[str, int]) -> None:
    words = [command.format(**ports) for command in COMMANDS]
    done = doc_pages.run(["-c", RUN_EACH, json.dumps(words)], folder)
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout.splitlines()[-1])
    assert {*ends} <= {1, 2, 3, 4}
    for number in range(len(words)):
        compare((folder / f"{number}.err").read_text())


def test_each_refusal_of_an_http_request_has_a_text_of_the_page() -> None:
    async def scenario() -> None:
        listener, ready = Http(port=0), asyncio.Event()
        serving = asyncio.create_task(Server("hello").serve(listener, ready=ready.set))
        await ready.wait()
        for headers in ({"Host": "mcp.example.com"}, {"Origin": "https://example.com"}, {"Mcp-Session-Id": "unknown"}):
            compare(await asyncio.to_thread(refused, listener.url, headers))
        await listener.close(grace=0)
        await serving

    asyncio.run(scenario())


def refused(url: str, headers: dict[str, str]) -> str:
    """Send a request that is refused; return the body of the answer."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(url, body, {**usual, **headers}), timeout=60)
    return error.value.read().decode()


def test_every_text_of_the_page_was_provoked() -> None:
    assert [heading for heading in HEADINGS if heading not in provoked] == []
