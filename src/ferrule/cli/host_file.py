"""The configuration files of AI hosts, changed in one place and left alone in all others.

Rule 1: a file is changed as text, so that comments, order and layout of everything else stay as they are.
Rule 2: what was written is read again before it is kept: it must be what was there, and the one change. A file that
cannot be read is not changed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from ferrule.errors import SetupError

MAX_DEPTH = 100
BYTE_ORDER = "\ufeff"
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
PLAIN_YAML = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
YAML_OUTERMOST = re.compile(
    r"""\s|\#|$|---|\.\.\.|-\ |(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[\w./$~+<(][^:\#]*):(?:\s|$)""", re.VERBOSE
)
"""A line of a block mapping: indented, a comment, empty, a mark of a document, an item of a list, or a key."""
BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
SAME_LINE = re.compile(r"(?:[^\S\n]*(?://[^\n]*|/\*[^\n]*?\*/))?")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
INDENTED = re.compile(r'\{[^\S\n]*\n([ \t]+)(?:"|/[/*])')
"""The first line inside the first object that is written in lines."""
SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


class Unreadable(SetupError):
    """A file that cannot be read, and so is not changed."""


# -- JSON with comments


class Node(Struct):
    """A value of a JSON text: what it is, and from where to where it stands."""

    value: Any
    start: int
    end: int
    members: dict[str, Node] = {}
    """The members of an object."""
    starts: dict[str, int] = {}
    """Where the name of each member begins."""


class JsonText:
    """Reads JSON with comments and trailing commas, as editors write it, and knows where everything stands."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> Node:
        """Return the only value of the text."""
        node = self._value(self._skip(0), 0)
        if self._skip(node.end) != len(self._text):
            raise self._wrong(node.end, "something stands behind the end")
        return node

    def _skip(self, at: int) -> int:
        found = BLANK.match(self._text, at)
        return at if found is None else found.end()

    def _wrong(self, at: int, why: str) -> Unreadable:
        line = self._text.count("\n", 0, at) + 1
        return Unreadable(f"line {line}: {why}")

    def _seen(self, at: int) -> str:
        line = self._text[at:].partition("\n")[0]
        if not line:
            return "the end of the file"
        return repr(line[:10])

    def _value(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._wrong(at, "it is nested too deeply")
        start = self._text[at : at + 1]
        if start == "{":
            return self._object(at, depth)
        if start == "[":
            return self._array(at, depth)
        found = STRING.match(self._text, at) or SCALAR.match(self._text, at)
        if found is None:
            raise self._wrong(at, f"a value is wanted, not {self._seen(at)}")
        try:
            return Node(json.loads(found[0]), at, found.end())
        except ValueError:
            raise self._wrong(at, f"{found[0][:20]} is not a value") from None

    def _object(self, at: int, depth: int) -> Node:
        node = Node({}, at, at, {}, {})
        place = self._skip(at + 1)
        while self._text[place : place + 1] != "}":
            name = STRING.match(self._text, place)
            if name is None:
                raise self._wrong(place, f'a "name" or }} is wanted, not {self._seen(place)}')
            colon = self._skip(name.end())
            if self._text[colon : colon + 1] != ":":
                raise self._wrong(colon, "there is no colon after the name")
            inner = self._value(self._skip(colon + 1), depth + 1)
            key = json.loads(name[0])
            node.value[key] = inner.value
            node.members[key] = inner
            node.starts[key] = place
            place = self._next(inner.end, "}")
        node.end = place + 1
        return node

    def _array(self, at: int, depth: int) -> Node:
        values: list[Any] = []
        place = self._skip(at + 1)
        while self._text[place : place + 1] != "]":
            inner = self._value(place, depth + 1)
            values.append(inner.value)
            place = self._next(inner.end, "]")
        return Node(values, at, place + 1)

    def _next(self, at: int, end: str) -> int:
        """Return where the next item begins, or the end."""
        place = self._skip(at)
        mark = self._text[place : place + 1]
        if mark == ",":
            return self._skip(place + 1)
        if mark != end:
            raise self._wrong(place, f"a comma or {end} is wanted, not {self._seen(place)}")
        return place


def edit_json(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return a JSON text with one server more in a table, or with another in the place of the one of that name."""
    if not text.strip():
        return json.dumps({table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    root = JsonText(text).read()
    if not isinstance(root.value, dict):
        raise Unreadable("it holds no JSON object")
    step = _indent_of(text)
    servers = root.members.get(table)
    if servers is None:
        changed = _with_member(text, root, table, {name: entry}, step, 1)
    elif not isinstance(servers.value, dict):
        raise Unreadable(f'"{table}" is not an object')
    elif name in servers.members:
        old = servers.members[name]
        changed = text[: old.start] + _json(entry, step, 2) + text[old.end :]
    else:
        changed = _with_member(text, servers, name, entry, step, 2)
    wanted = {**root.value, table: {**root.value.get(table, {}), name: dict(entry)}}
    if JsonText(changed).read().value != wanted:
        raise Unreadable("it cannot be changed without changing something else")
    return changed


def _with_member(text: str, node: Node, name: str, value: object, step: str, depth: int) -> str:
    """Return a text with one more member at the end of an object."""
    member = f"{json.dumps(name, ensure_ascii=False)}: {_json(value, step, depth)}"
    inner = f"\n{step * depth}"
    if not node.members:
        # What stands between the braces may be a comment, which stays.
        head = text[: node.end - 1].rstrip()
        return f"{head}{inner}{member}\n{step * (depth - 1)}{text[node.end - 1 :]}"
    last = max(each.end for each in node.members.values())
    comma = _first_comma(text[last : node.end - 1])
    # A trailing comma stays, as some editors leave it; so does a comment behind the last member.
    mark = text[last : last + comma + 1] if comma >= 0 else ","
    behind = last + comma + 1
    comment = SAME_LINE.match(text, behind, node.end - 1)
    assert comment is not None  # it may be empty
    return f"{text[:last]}{mark}{comment[0]}{inner}{member}{text[comment.end() :]}"


def _first_comma(text: str) -> int:
    """Return where a comma stands that is in no comment; -1 without one."""
    found = BLANK.match(text)
    at = 0 if found is None else found.end()
    if text[at : at + 1] == ",":
        return at
    return -1


def _json(value: object, step: str, depth: int) -> str:
    lines = json.dumps(value, indent=step or None, ensure_ascii=False).split("\n")
    return f"\n{step * depth}".join(lines)


def _indent_of(text: str) -> str:
    """Return what one level is indented by in a text."""
    found = INDENTED.search(text)
    if found is None:
        return "  "
    return found[1]


# -- TOML


def edit_toml(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return a TOML text with the section of one server, in the place of the one it had or at the end."""
    before = _toml(text)
    servers = before.get(table, {})
    if not isinstance(servers, dict):
        raise Unreadable(f"[{table}] is not a table")
    section = _toml_section(table, name, entry)
    kept = _without_section(text, table, name) if name in servers else text
    if kept.strip():
        kept = kept.rstrip("\n") + "\n\n"
    changed = f"{kept}{section}"
    wanted = {**before, table: {**servers, name: dict(entry)}}
    if _toml(changed) != wanted:
        raise Unreadable(f"[{table}] is written in a way that cannot be changed without changing something else")
    return changed


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        raise Unreadable(f"it is not TOML: {reason}") from None


def _toml_key(name: str) -> str:
    if BARE_KEY.fullmatch(name):
        return name
    return json.dumps(name)


def _toml_section(table: str, name: str, entry: Mapping[str, Any]) -> str:
    lines = [f"[{table}.{_toml_key(name)}]"]
    inner: list[str] = []
    for key, value in entry.items():
        if isinstance(value, Mapping):
            inner.append(f"[{table}.{_toml_key(name)}.{_toml_key(key)}]")
            inner.extend(f"{_toml_key(each)} = {json.dumps(text)}" for each, text in value.items())
        else:
            lines.append(f"{_toml_key(key)} = {json.dumps(value)}")
    return "\n".join([*lines, *inner]) + "\n"


def _without_section(text: str, table: str, name: str) -> str:
    """Return a text without the sections of one server."""
    own = {f"{table}.{name}", f'{table}."{name}"', f"{table}.{_toml_key(name)}"}
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            header = line.lstrip().lstrip("[").partition("]")[0].strip()
            inside = header in own or any(header.startswith(f"{each}.") for each in own)
        if not inside:
            kept.append(line)
    return "".join(kept)


# -- YAML


def edit_yaml(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return a YAML text with one server more in a block mapping, or another in the place of that of the name."""
    if "\t" in text:
        raise Unreadable("it has tabs in it, which YAML does not indent by")
    before = read_yaml(text)
    changed = _with_yaml_server(text, table, name, entry)
    after = read_yaml(changed)
    if before is not None and after != {**before, table: {**(before.get(table) or {}), name: dict(entry)}}:
        raise Unreadable("it cannot be changed without changing something else")
    return changed


def read_yaml(text: str) -> dict[str, Any] | None:
    """Read a YAML text; None where no package is installed that does, and only its outermost lines were looked at."""
    for number, line in enumerate(text.splitlines(), 1):
        if YAML_OUTERMOST.match(line) is None:
            raise Unreadable(f"line {number}: a key with a colon is wanted, not {line[:10]!r}")
    try:
        import yaml
    except ImportError:
        return None
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as reason:
        raise Unreadable(f"it is not YAML: {' '.join(str(reason).split())}") from None
    if not isinstance(value, dict | None):
        raise Unreadable("it holds no mapping")
    return value or {}


def _with_yaml_server(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    lines = text.removesuffix("\n").split("\n") if text else []
    block = _yaml_block(name, entry)
    at = _yaml_line(lines, table)
    if at is None:
        return "\n".join([*lines, f"{table}:", *block]) + "\n"
    rest = lines[at].partition(":")[2].partition("#")[0].strip()
    if rest == "{}":
        lines[at] = f"{table}:"
    elif rest:
        raise Unreadable(f"line {at + 1}: {table} is written in one line, which is not changed here")
    _refuse_sequence(lines[at + 1 :])
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith((" ", "#"))):
        end += 1
    step = _yaml_step(lines[at + 1 : end])
    block = [step + line.removeprefix("  ") if step != "  " else line for line in block]
    start = _yaml_member(lines, at + 1, end, step, name)
    if start is None:
        while end > at + 1 and not lines[end - 1].strip():
            end -= 1
        return "\n".join([*lines[:end], *block, *lines[end:]]) + "\n"
    stop = start + 1
    while stop < end and (not lines[stop].strip() or lines[stop].startswith(f"{step} ")):
        stop += 1
    return "\n".join([*lines[:start], *block, *lines[stop:]]) + "\n"


def _refuse_sequence(lines: Sequence[str]) -> None:
    """Refuse a table that is a list."""
    for line in lines:
        words = line.strip()
        if words and not words.startswith("#"):
            if words.startswith("-") and not words.startswith("---"):
                raise Unreadable("the servers are written as a list, which is not changed here")
            return


def _yaml_line(lines: Sequence[str], table: str) -> int | None:
    found = [number for number, line in enumerate(lines) if re.match(rf"{re.escape(table)}\s*:", line)]
    if len(found) > 1:
        raise Unreadable(f"{table} stands in it twice")
    return found[0] if found else None


def _yaml_step(lines: Sequence[str]) -> str:
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            return line[: len(line) - len(line.lstrip())]
    return "  "


def _yaml_member(lines: Sequence[str], start: int, end: int, step: str, name: str) -> int | None:
    for number in range(start, end):
        key = lines[number].removeprefix(step).partition(":")[0].strip("\"'")
        if lines[number].startswith(step) and not lines[number].startswith(f"{step} ") and key == name:
            return number
    return None


def _yaml_block(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return a server as lines of YAML; JSON is YAML, so values are written as that."""
    key = name if PLAIN_YAML.fullmatch(name) else json.dumps(name)
    lines = [f"  {key}:"]
    for each, value in entry.items():
        lines.append(f"    {each}: {json.dumps(value, ensure_ascii=False)}")
    return lines


EDITORS = {"json": edit_json, "toml": edit_toml, "yaml": edit_yaml}
"""How the text of each format is changed."""


def edited(kind: str, text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return a text of a format with one server in a table; line ends and a mark of byte order stay as they are."""
    body = text.removeprefix(BYTE_ORDER)
    mark = text[: len(text) - len(body)]
    windows = "\r\n" in body and body.count("\n") == body.count("\r\n")
    if windows:
        body = body.replace("\r\n", "\n")
    changed = EDITORS[kind](body, table, name, entry)
    if windows:
        changed = changed.replace("\n", "\r\n")
    return mark + changed
