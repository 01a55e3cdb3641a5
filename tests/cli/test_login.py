"""`ferrule login`, `logout`, `whoami` and `doctor auth`, against a real server and authorization server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from protected import Place, protected

from ferrule import Client, OAuth, Server
from ferrule.transports.http.listener import Http


class Ended:
    """How a program ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


async def ferrule(*words: str, home: Path, answer: bool = False) -> Ended:
    """Run the command; with `answer`, be the person who opens the page it shows."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home)}
    environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        environment.pop(name, None)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ferrule", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    out = b""
    while answer:
        line = await program.stdout.readline()
        out += line
        if not line:
            break
        if line.strip().startswith(b"http"):
            async with httpx.AsyncClient(trust_env=False, follow_redirects=True) as browser:
                page = await browser.get(line.strip().decode())
                assert page.status_code == 200
            break
    rest, err = await program.communicate()
    return Ended(program.returncode or 0, (out + rest).decode(), err.decode())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of its own."""
    return tmp_path / "config"


def run(test: Any) -> None:
    """Run an async test."""
    asyncio.run(asyncio.wait_for(test, 100))


def test_one_logs_in_and_out_and_a_program_uses_the_login(home: Path) -> None:
    async def story() -> None:
        async with protected() as place:
            empty = await ferrule("whoami", home=home)
            assert (empty.code, empty.err) == (1, "error: there is no login for any server: run `ferrule login URL`\n")
            logged_in = await ferrule("login", place.url, "--no-browser", "--scope", "notes", home=home, answer=True)
            assert logged_in.code == 0, logged_in.err
            assert f"logged in to {place.url} by {place.issuer.issuer} with notes" in logged_in.out
            file = home / "ferrule" / "tokens.json"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            await _uses(place, file)
            again = await ferrule("login", place.url, home=home)
            assert "logged in already" in again.out
            shown = await ferrule("whoami", "--json", home=home)
            [login] = json.loads(shown.out)
            assert (login["server"], login["issuer"], login["state"]) == (place.url, place.issuer.issuer, "ok")
            assert place.url in (await ferrule("whoami", place.url, home=home)).out
            secrets = [each for each in _texts(json.loads(file.read_text())) if len(each) > 40 and "://" not in each]
            for ended in (logged_in, again, shown):
                assert all(secret not in ended.out + ended.err for secret in secrets)
            out = await ferrule("logout", place.url, home=home)
            assert out.out == f"logged out of {place.url}\n"
            assert place.issuer.count("revoke") == 1
            assert (await ferrule("logout", place.url, home=home)).code == 1
            assert (await ferrule("whoami", place.url, home=home)).code == 1

    run(story())


def test_what_the_guide_shows_is_what_is_said(home: Path) -> None:
    """Each command of the guide's section is run, and says what stands there."""
    page = Path(__file__).resolve().parents[2] / "docs" / "guides" / "command-line.md"
    section = page.read_text(encoding="utf-8").partition("## Log in\n")[2]
    shown = section.partition("```console\n")[2].partition("```")[0]

    async def story() -> None:
        async with protected(verifier={"scopes": ["notes"]}) as place:
            steps = re.split(r"^\$ ", shown.replace("https://mcp.example.com/mcp", place.url), flags=re.MULTILINE)[1:]
            assert [step.split()[1] for step in steps] == ["login", "whoami", "logout"]
            for step in steps:
                command, _, said = step.partition("\n")
                pattern = re.escape(said.replace("https://login.example.com", place.issuer.issuer))
                pattern = pattern.replace("…", r"\S+").replace(re.escape("2026-11-16T19:49:45"), r"[\dT:-]+")
                ended = await ferrule(*command.split()[1:], home=home, answer="login" in command)
                assert re.fullmatch(pattern, ended.out), (ended.out, ended.err)

    run(story())


async def _uses(place: Place, file: Path) -> None:
    async with Client(place.url, auth=OAuth(storage=file, open_browser=False)) as client:
        assert (await client.call_tool("whoami")).text.endswith("#ada")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)


def test_one_who_sits_elsewhere_pastes_the_last_url(home: Path) -> None:
    """The browser is on another machine: a real terminal, and the answer is judged like any other."""

    async def story() -> None:
        async with protected() as place:
            ours, theirs = os.openpty()
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ferrule", "login", place.url, "--no-browser", "--timeout", "60"),
                stdin=theirs,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "XDG_CONFIG_HOME": str(home)},
            )
            os.close(theirs)
            assert program.stdout is not None
            url = ""
            while not url.startswith("http"):
                url = (await program.stdout.readline()).decode().strip()
            answer = await place.person(url)
            os.write(ours, b"nonsense\n\n")
            os.write(ours, b"http://127.0.0.1/callback?code=x&state=wrong\n")
            os.write(ours, answer.encode() + b"\n")
            out, err = await program.communicate()
            os.close(ours)
            assert program.returncode == 0, err
            assert f"logged in to {place.url}" in out.decode()
            assert err.decode().count("not the answer of this login") == 2

    run(story())


def test_a_login_that_cannot_be_ends_with_one_sentence(home: Path) -> None:
    async def story() -> None:
        async with protected(profile="github") as place:
            ended = await ferrule("login", place.url, "--no-browser", "--timeout", "1", home=home)
            assert ended.code == 1
            assert ended.err.startswith("error: ")
            assert len(ended.err.splitlines()) == 1

    run(story())


def test_a_server_that_is_not_there_ends_with_4_and_what_is_no_url_with_1(home: Path) -> None:
    async def story() -> None:
        ended = await ferrule("login", "http://127.0.0.1:9/mcp", home=home)
        assert (ended.code, ended.err.startswith("error: cannot reach")) == (4, True)
        ended = await ferrule("login", "nothing", home=home)
        assert (ended.code, ended.err) == (
            1,
            "error: the URL 'nothing' must begin with http:// or https:// and name a host\n",
        )

    run(story())


def test_the_doctor_shows_each_step(home: Path) -> None:
    async def story() -> None:
        async with protected() as place:
            good = await ferrule("doctor", "auth", place.url, home=home)
            assert good.code == 0, good.out + good.err
            told = good.out.splitlines()
            assert all(line.startswith("ok") for line in told)
            wanted = (
                "challenge",
                "protected resource metadata",
                "resource",
                "issuer",
                "registration",
                "token endpoint",
            )
            for step in wanted:
                assert any(line.startswith(f"ok    {step}: ") for line in told), step
            place.issuer.fail("metadata", 500, times=9)
            bad = await ferrule("doctor", "auth", place.url, "--json", home=home)
            assert bad.code == 1
            last = json.loads(bad.out)[-1]
            assert (last["ok"], last["found"], bool(last["fix"])) == (False, "it answered HTTP 500", True)

    run(story())


def test_the_doctor_knows_an_open_server_and_one_that_is_not_there(home: Path) -> None:
    async def story() -> None:
        app = Server("open")
        listener = Http(port=0)
        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(listener, ready=ready.set))
        await ready.wait()
        ended = await ferrule("doctor", "auth", listener.url, home=home)
        assert "it lets in anybody" in ended.out
        url = listener.url
        await app.stop(0.0)
        await serving
        gone = await ferrule("doctor", "auth", url, home=home)
        assert gone.code == 1
        assert "FAIL  server: " in gone.out

    run(story())


def test_one_logs_in_on_another_device_with_the_code_that_is_shown(home: Path) -> None:
    async def story() -> None:
        async with protected(device_interval=1.0) as place:
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ferrule", "login", place.url, "--device", "--storage", "file"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "XDG_CONFIG_HOME": str(home)},
            )
            assert program.stdout is not None
            first = (await program.stdout.readline()).decode()
            line = ""
            while "user_code=" not in line:
                line = (await program.stdout.readline()).decode().strip()
            assert line.partition("user_code=")[2] in first
            async with httpx.AsyncClient(trust_env=False) as browser:
                assert "You are signed in" in (await browser.get(line)).text
            out, err = await program.communicate()
            assert program.returncode == 0, err
            assert f"logged in to {place.url}" in out.decode()
            await _uses(place, home / "ferrule" / "tokens.json")

    run(story())
