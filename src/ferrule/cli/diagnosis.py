"""What keeps a server from working in a host: found by looking at its entry, by starting it, or by asking its URL."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ferrule.check.answer import Answer, excerpt
from ferrule.check.era import HANDSHAKE, STATELESS, Era
from ferrule.check.http import STREAM, HttpWire
from ferrule.check.talk import EraNotSpoken, Talk, Unauthorized
from ferrule.check.wire import MessageWire, NoAnswer
from ferrule.cli.host_servers import Entry
from ferrule.errors import FerruleError
from ferrule.protocol.handshake import OLDEST
from ferrule.transports.process.child import SAFE_ENV, ChildProcess

GUI_HOSTS = frozenset({"claude-desktop", "cursor", "vscode", "windsurf", "zed"})
"""Hosts with windows: they are not started from a shell, and have a PATH of their own."""
GUI_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
"""The folders that are in that PATH on macOS and on Linux."""
SLOW = 10.0
"""Seconds to start after which some hosts give up."""
PLACEHOLDER = re.compile(r"<[^<>]*>|your[-_ ].*|.*(?:changeme|xxxx|_here)|\.\.\.|…", re.IGNORECASE)
"""Values copied from documentation that nobody replaced."""
REFERENCE = re.compile(r"\$\{?\w+\}?")
"""A reference to another variable, which some hosts expand."""
NOT_REPLACED = frozenset({"claude-desktop"})
"""Hosts that do not expand it."""
MISSING_MODULE = re.compile(r"No module named '([\w.]+)'|Cannot find (?:module|package) '([^']+)'")
MISSING_VARIABLE = re.compile(r"KeyError: '([A-Z][A-Z0-9_]+)'")
FILE = re.compile(r"[^-].*\.(?:py|js|mjs|cjs|ts|json|toml)")
CANDIDATES = ("/mcp", "/mcp/", "/sse", "/")
"""Paths at which servers usually are."""


class Ailment(Struct, frozen=True, kw_only=True):
    """The result of one examination, sound or ill."""

    what: str
    """The name of what was examined, which never changes its meaning."""
    ok: bool
    found: str
    fix: str = ""
    better: Entry | None = None
    """The entry as it should be, where that is known."""


def sound(what: str, found: str) -> Ailment:
    """Return a result without a fault."""
    return Ailment(what=what, ok=True, found=found)


def ill(what: str, found: str, fix: str, better: Entry | None = None) -> Ailment:
    """Return a fault and how to fix it."""
    return Ailment(what=what, ok=False, found=found, fix=fix, better=better)


# -- the entry


def entry_ailments(entry: Entry, host: str, folder: Path) -> list[Ailment]:
    """Return the faults of a server's entry in a host; relative paths are looked for in a folder."""
    if not entry.command:
        return []
    found: list[Ailment] = []
    found.extend(_command_ailments(entry, host, folder))
    found.extend(_path_ailments(entry, folder))
    for name, value in entry.variables.items():
        why = _variable_fault(value.strip(), host)
        if why:
            found.append(ill("environment", f"the variable {name} {why}", f"write its value under env: {name}"))
    return found


def _variable_fault(value: str, host: str) -> str:
    """Return what is wrong with the value of a variable, empty where nothing is."""
    if not value:
        return "is empty"
    if PLACEHOLDER.fullmatch(value):
        return "has the value of an example"
    if host in NOT_REPLACED and REFERENCE.fullmatch(value):
        return "refers to another variable, which this host does not put in"
    return ""


def _command_ailments(entry: Entry, host: str, folder: Path) -> list[Ailment]:
    command = entry.command
    if os.sep in command:
        return _program_ailments(entry, folder)
    if "PATH" in entry.variables:
        search = entry.variables["PATH"]
    elif host in GUI_HOSTS:
        search = GUI_PATH
    else:
        search = os.environ.get("PATH", os.defpath)
    if shutil.which(command, path=search):
        return []
    here = shutil.which(command)
    if here is None:
        fix = f"install {command}, or write the full path of the program"
        return [ill("command", f"there is no program {command}", fix)]
    told = f"{command} is {here} in your shell, and a host that is started from a desktop does not look there"
    better = entry.with_command(here, entry.arguments)
    return [ill("command-path", told, f"write {here}", better)]


def _program_ailments(entry: Entry, folder: Path) -> list[Ailment]:
    command = entry.command
    program = Path(command).expanduser()
    if not program.is_absolute():
        there = (Path(entry.cwd or folder) / program).absolute()
        better = None
        if there.exists():
            better = entry.with_command(str(there), entry.arguments)
        told = f"the program {command} is a relative path, and a host starts in a folder of its own"
        return [ill("relative-path", told, f"write {there}", better)]
    if command.startswith("~"):
        better = entry.with_command(str(program), entry.arguments)
        return [ill("relative-path", f"{command} begins with ~, which only a shell reads", f"write {program}", better)]
    if not program.exists():
        fix = f"make the environment again, or write a program that exists, such as {sys.executable}"
        return [ill("interpreter", f"there is no {command}: was its environment deleted or moved?", fix)]
    if not os.access(program, os.X_OK):
        return [ill("interpreter", f"{command} may not be executed", f"chmod +x {command}")]
    return []


def _path_ailments(entry: Entry, folder: Path) -> list[Ailment]:
    """Return the faults of arguments that name files."""
    found: list[Ailment] = []
    arguments = entry.arguments
    for position, word in enumerate(arguments):
        place = word
        path, colon, name = word.partition(".py:")
        if colon:
            place = f"{path}.py"
        if FILE.fullmatch(place) is None or "://" in place:
            continue
        if Path(place).is_absolute():
            if not Path(place).exists():
                found.append(ill("file", f"there is no file {place}", "correct the path, or install the server again"))
            continue
        if entry.cwd is not None and (Path(entry.cwd) / place).exists():
            continue
        there = (folder / Path(place).expanduser()).absolute()
        better = None
        if there.exists():
            changed = list(arguments)
            changed[position] = str(there)
            if colon:
                changed[position] += f":{name}"
            better = entry.with_command(entry.command, changed)
        told = f"{place} is a relative path, and a host starts in a folder of its own"
        found.append(ill("relative-path", told, f"write {there}", better))
    return found


# -- a program


async def start_ailments(command: list[str], env: Mapping[str, str], cwd: str | None, seconds: float) -> list[Ailment]:
    """Start a program as a host does, and return what is wrong with how it starts."""
    first = await _start(command, env, cwd, seconds, inherit=False)
    if first[0].ok or first[0].what not in ("exits", "environment"):
        return first
    second = await _start(command, env, cwd, seconds, inherit=True)
    if not second[0].ok:
        return first
    variable = "NAME"
    named = MISSING_VARIABLE.search(first[0].found)
    if named:
        variable = named[1]
    told = "it starts in your shell and not in a host, which does not have the variables of your shell"
    return [ill("environment", f"{told}: {first[0].found}", f'write what it needs under "env": {{"{variable}": "…"}}')]


async def _start(
    command: list[str], env: Mapping[str, str], cwd: str | None, seconds: float, *, inherit: bool
) -> list[Ailment]:
    inherited: bool | tuple[str, ...] = SAFE_ENV
    if inherit:
        inherited = True
    child = ChildProcess(command, env=env, cwd=cwd, stderr="capture", inherit_env=inherited)
    wire = MessageWire(child, "stdio")
    talk = Talk(wire, HANDSHAKE, seconds)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await wire.open(seconds)
        await _open(talk)
    except NoAnswer as reason:
        return [_unanswered(reason, wire, child, seconds)]
    except EraNotSpoken as reason:
        return [ill("protocol", str(reason), "see that the command starts an MCP server on stdio")]
    except FerruleError as reason:
        return [ill("command", str(reason), "correct the command")]
    finally:
        took = loop.time() - began
        await talk.close(1.0)
    found = _begun(talk, took)
    if wire.noise:
        found.append(_noise(wire))
    return found


async def _open(talk: Talk) -> None:
    """Start a conversation in either era."""
    try:
        await talk.open()
    except EraNotSpoken:
        other: Era = STATELESS
        newer = Talk(talk.wire, other, talk.seconds)
        await newer.open()
        talk.opening = newer.opening
        talk.version = newer.version


def _begun(talk: Talk, took: float) -> list[Ailment]:
    """Return the results for a server that answers."""
    if took > SLOW:
        fix = "import less at the start, and do the slow part at the first call: some hosts give up after 10 s"
        return [ill("slow-start", f"it answered after {took:.1f} s", fix)]
    found = [sound("starts", f"it answers after {took:.1f} s, in {talk.version}")]
    if talk.version == OLDEST.version:
        fix = "update the library the server is made with"
        found.append(ill("old-version", f"it speaks {talk.version} only, which newer hosts leave behind", fix))
    return found


def _noise(wire: MessageWire) -> Ailment:
    fix = "print to stderr (in Python: print(…, file=sys.stderr) or logging), or run it with `ferrule run`"
    return ill("stdout", f"it writes to stdout what is not a message: {excerpt(wire.noise[0])!r}", fix)


def _unanswered(reason: NoAnswer, wire: MessageWire, child: ChildProcess, seconds: float) -> Ailment:
    """Return why a program does not answer."""
    tail = child.stderr_tail
    if not reason.gone:
        if wire.noise:
            return _noise(wire)
        fix = "see that the command starts an MCP server on stdio, and does not wait for anything before it answers"
        return ill("silent", f"it runs, and does not answer within {seconds:g} s", fix)
    last = "it said nothing on stderr"
    if tail.strip():
        last = tail.splitlines()[-1].strip()
    module = MISSING_MODULE.search(tail)
    if module:
        name = (module[1] or module[2]).partition(".")[0]
        fix = f"install {name} for the program that the host starts, or write the interpreter that has it"
        return ill("dependency", last, fix)
    if MISSING_VARIABLE.search(tail):
        return ill("environment", last, 'write the variable under "env"')
    fix = "run it in a shell to see why"
    if child.exit_code == 0:
        fix = "let it start a server and wait for messages, as app.run() does"
    return ill("exits", f"it ends at once with exit code {child.exit_code}: {last}", fix)


# -- a URL


async def url_ailments(entry: Entry, seconds: float) -> list[Ailment]:
    """Send a request to a URL; where no server answers, look for one nearby. Return what was found."""
    url = entry.url.removeprefix("sse+")
    answer = await _posted(url, entry.headers, seconds)
    if isinstance(answer, str):
        return [await _unreached(entry, url, answer, seconds)]
    if answer.status == 401:
        fix = f"log in with `ferrule login {url}`; `ferrule doctor auth {url}` looks at each step"
        return [ill("login", "it wants to know who asks: HTTP 401", fix)]
    if answer.result is not None:
        told = f"it answers, in {answer.result.get('protocolVersion')}"
        return [sound("answers", told)]
    if answer.status in (403, 421):
        fix = "let the server accept the name in the URL (allowed hosts and origins), or use the name it knows"
        return [ill("host-refused", f"it refuses this host or origin: {answer.told}", fix)]
    if answer.status >= 500:
        return [ill("server-error", answer.told, "see the log of the server")]
    return [await _find_path(entry, url, answer, seconds)]


async def _posted(url: str, headers: Mapping[str, str], seconds: float) -> Answer | str:
    """Send `initialize` to a URL, then `server/discover`. Return the answer, or why there is none."""
    try:
        wire = HttpWire(url, headers)
        await wire.open(seconds)
        talk = Talk(wire, HANDSHAKE, seconds)
        try:
            answer = await talk.initialize(talk.version)
            if answer.result is None and answer.status != 401:
                newer = await Talk(wire, STATELESS, seconds).request("server/discover")
                if newer.result is not None:
                    return Answer(message={"result": {"protocolVersion": "the stateless versions"}}, status=200)
        finally:
            await talk.close()
    except (FerruleError, NoAnswer, Unauthorized) as reason:
        return str(reason)
    return answer


async def _unreached(entry: Entry, url: str, why: str, seconds: float) -> Ailment:
    """Return why nobody answers; a server may speak http where the URL says https, and the other way round."""
    scheme, _, rest = url.partition("://")
    other = "http"
    if scheme == "http":
        other = "https"
    other_url = f"{other}://{rest}"
    # Without the headers: secrets are sent to no other URL than their own.
    found = await _posted(other_url, {}, seconds)
    if isinstance(found, Answer):
        better = None
        if other == "https":
            better = entry.with_url(other_url)
        return ill("scheme", f"{why}; there is an answer over {other}", f"write {other_url}", better)
    return ill("unreachable", why, "start the server, and compare host and port with what it says at its start")


def _nearby(url: str) -> list[str]:
    """Return the URLs of the same host at which the server of a URL may be."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    root = f"{scheme}://{authority}"
    own = root + f"{slash}{path}".rstrip("/")
    found = [own, f"{own}/mcp"]
    if not url.endswith("/"):
        found[0] = f"{own}/"
    for candidate in CANDIDATES:
        if f"{root}{candidate}" not in found:
            found.append(f"{root}{candidate}")
    return [place for place in found if place != url]


async def _find_path(entry: Entry, url: str, answer: Answer, seconds: float) -> Ailment:
    """Look for the server at other paths of the same host."""
    for place in _nearby(url):
        found = await _posted(place, entry.headers, seconds)
        if isinstance(found, Answer) and (found.result is not None or found.status == 401):
            told = f"{url} was answered with HTTP {answer.status}, and there is a server at {place}"
            return ill("path", told, f"write {place}", entry.with_url(place))
        if place.endswith("/sse") and await _is_stream(place, entry.headers, seconds):
            told = (
                f"{url} was answered with HTTP {answer.status}, and there is a server of the older transport at {place}"
            )
            return ill("path", told, f'write {place}, with "type": "sse"')
    fix = "compare the path with what the server says at its start; another program may have the port"
    return ill("path", f"there is no MCP server: {answer.told}", fix)


async def _is_stream(url: str, headers: Mapping[str, str], seconds: float) -> bool:
    try:
        reply = await HttpWire(url, headers).head("GET", {"Accept": STREAM}, seconds)
    except (FerruleError, NoAnswer):
        return False
    return reply.status == 200 and reply.kind == STREAM
