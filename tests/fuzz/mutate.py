"""Good messages made hostile: one place of a message is filled with something long, wide, deep, odd or repeated.

A filler is raw JSON text of about a size, or text that only looks like JSON. A place is a value anywhere in a message,
a new member of any object, or the space between two members. `NONCE` stands in most fillers and is replaced for each
time an input is sent, so that no two have the same content.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from grammar import Message

from ferrule.budgets.bounds import MAX_REPAIRED_SIZE
from ferrule.server.functions.arguments import WHOLE_FRACTION

LONG_NUMBER = re.compile(rb"(?<![0-9.])[0-9]{500,4300}(?![0-9])")
NONCE = b"0nonce00"
HOLE = "\x00hole\x00"
HOLE_TEXT = json.dumps(HOLE).encode()

Filler = Callable[[int], bytes]


def _times(piece: bytes, size: int) -> bytes:
    return piece * max(1, size // len(piece))


def _string(piece: bytes) -> Filler:
    return lambda size: b'"' + NONCE + _times(piece, size) + b'"'


def _list(item: bytes) -> Filler:
    return lambda size: b'["' + NONCE + b'",' + _times(item + b",", size) + item + b"]"


def _members(value: bytes) -> Filler:
    def filled(size: int) -> bytes:
        count = max(1, size // (len(value) + 14))
        return b"{" + b",".join(b'"k%s%x":%s' % (NONCE, n, value) for n in range(count)) + b"}"

    return filled


def _repeated_key(size: int) -> bytes:
    return b'{"a":"' + NONCE + b'",' + _times(b'"a":1,', size) + b'"a":2}'


def _long_key(size: int) -> bytes:
    return b'{"' + NONCE + _times(b"k", size) + b'":1}'


def _deep(opening: bytes, inner: bytes, closing: bytes) -> Filler:
    def filled(size: int) -> bytes:
        count = max(1, size // (len(opening) + len(closing)))
        return opening * count + inner + closing * count

    return filled


def _zigzag(size: int) -> bytes:
    """Return a hundred levels, again and again: as deep as is read, and wide."""
    piece = b"[" * 100 + b"]" * 100
    return b"[" + _times(piece + b",", size) + piece + b"]"


def _schema(size: int) -> bytes:
    """Return a schema whose parts all refer to each other."""
    count = max(2, size // 60)
    parts = b",".join(b'"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"type":"null"}]}' % (n, n + 1) for n in range(count))
    return b'{"type":"object","$defs":{%s,"d%d":{}},"properties":{"result":{"$ref":"#/$defs/d0"}}}' % (parts, count)


STRINGS = {
    "letters": b"a",
    "newlines": b"\\n",
    "zeros": b"\\u0000",
    "escape codes": b"\\u001b[31m",
    "accents": "é".encode(),
    "emoji": "😀".encode(),
    "escaped emoji": b"\\ud83d\\ude00",
    "half pairs": b"\\ud800",
    "escaped letters": b"\\u0061",
    "quotes": b'\\"',
    "backslashes": b"\\\\",
    "line separators": "\u2028".encode(),
    "bytes that are no text": b"\xff",
    "raw tabs": b"\t",
    "slashes": b"/",
    "encoded slashes": b"%2F",
    "bad percents": b"%",
    "dots": b"../",
    "colons": b":",
    "braces": b"{x}",
    "dashes": b"-",
    "commas": b",",
    "spaces": b" ",
    "digits": b"9",
    "questions": b"?a=1&",
    "base64": b"QUJD",
}

LISTS = {
    "ones": b"1",
    "objects": b"{}",
    "lists": b"[]",
    "empty strings": b'""',
    "nulls": b"null",
    "fractions": b"1.5",
    "strings": b'"ab"',
    "small objects": b'{"a":1}',
    "small objects with a name": b'{"name":"a","type":"text","text":""}',
    "wholes beyond 64 bits": b"99999999999999999999",
}

FILLERS: dict[str, Filler] = {
    **{f"a string of {name}": _string(piece) for name, piece in STRINGS.items()},
    **{f"a list of {name}": _list(item) for name, item in LISTS.items()},
    "an object of numbers": _members(b"1"),
    "an object of objects": _members(b"{}"),
    "an object of strings": _members(b'"x"'),
    "an object of lists": _members(b"[1]"),
    "an object with one key again and again": _repeated_key,
    "an object with a long key": _long_key,
    "deep lists": _deep(b"[", b"1", b"]"),
    "deep objects": _deep(b'{"a":', b"1", b"}"),
    "deep lists without an end": _deep(b"[", b"", b""),
    "deep objects without an end": _deep(b'{"a":', b"", b""),
    "deep and wide lists": _zigzag,
    "a long whole number": lambda size: b"9" * size,
    "a long negative number": lambda size: b"-" + b"9" * size,
    "a long fraction": lambda size: b"0." + b"1" * size,
    "a long exponent": lambda size: b"1e" + b"9" * min(size, 400),
    "spaces": lambda size: b" " * size + b"1",
    "NaN": lambda size: b'["' + NONCE + _times(b"a", size) + b'",NaN]',
    "a string without an end": lambda size: b'"' + NONCE + b"a" * size,
    "a schema of references": _schema,
}


class Case(NamedTuple):
    """One hostile input: a JSON text, or what only looks like one."""

    name: str
    frame: bytes
    messages: int = 1
    """How many messages it holds; each has a cost of its own."""
    requests: int = 0
    """How many of them are sure to be answered, one by one or together."""
    identity: Any = None
    """The id of the one request that must be answered exactly once; None where that cannot be told from outside."""
    method: str = ""
    params: Any = None
    """Those of the message before it was spoilt: headers of HTTP mirror them."""
    sure: bool = True
    """Whether an answer must come; a message that was broken anywhere may have become a notification."""

    raw: bool = False
    """Whether `frame` is what goes over the wire, as it is."""

    @property
    def awaits(self) -> int:
        """How many frames must come back at least: the answers of a batch are one."""
        return min(1, self.requests) if self.sure else 0

    @property
    def standing(self) -> bool:
        """Whether it asks for something that stands open until its caller goes, such as a subscription."""
        return bool(self.method) and not self.requests

    units: int = 0
    """How many frames, chunks, headers or lines it is made of that are no messages."""

    piece: int = 0
    """How many bytes one read brings; 0: as many as there are."""
    inflated: int = 0
    """How many bytes it has once it is decompressed."""
    alone: bool = False
    """Whether its connection is of no use after it."""

    @property
    def dearer(self) -> dict[str, int]:
        """What it holds, or seems to, that costs more than its bytes may (see `resource_oracle.DEARER`)."""
        found = {"units": self.units} if self.units else {}
        if containers := self.frame.count(b"[") + self.frame.count(b"{"):
            found["containers"] = containers
        if digits := sum(map(len, LONG_NUMBER.findall(self.frame))):
            found["digits"] = digits
        if b'"arguments"' in self.frame:
            found["explained"] = 1
            if len(self.frame) < MAX_REPAIRED_SIZE + 1000:
                found["fractions"] = len(re.findall(WHOLE_FRACTION, self.frame))
        return found

    def numbered(self, number: int) -> bytes:
        """Return the text with a content of its own."""
        return self.frame.replace(NONCE, b"%08d" % (number % 10**8))


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value of a tree, the tree itself excepted."""
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in members:
        yield (*path, key)
        yield from places(value, (*path, key))


def objects(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every object of a tree."""
    if isinstance(tree, dict):
        yield path
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in members:
        yield from objects(value, (*path, key))


def _put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(tree)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def fill(message: Message, path: tuple[Any, ...], kind: str, size: int) -> Case:
    """Put a filler in the place of a value, or of a member that is new there."""
    tree = _put(message.tree, path, HOLE)
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    frame = text.replace(HOLE_TEXT, FILLERS[kind](size))
    where = ".".join(str(key) for key in path)
    return Case(
        f"{message.name}: {kind} of {size} at {where}",
        frame,
        _messages(message),
        message.requests,
        method=message.method,
        params=message.params,
    )


def _messages(message: Message) -> int:
    return len(message.tree) if isinstance(message.tree, list) else 1


def plain(message: Message) -> Case:
    """Return the message as it is."""
    frame = json.dumps(message.tree, ensure_ascii=False, separators=(",", ":")).encode()
    identity = message.tree.get("id") if isinstance(message.tree, dict) and message.requests else None
    return Case(message.name, frame, _messages(message), message.requests, identity, message.method, message.params)


def any_size(largest: int, chance: random.Random) -> int:
    """Return a size of chance, small ones as often as large ones: bounds lie anywhere between."""
    return int(50 * (largest / 50) ** chance.random())


def filled(message: Message, largest: int, chance: random.Random) -> Iterator[Case]:
    """Yield every filler once, in an order, in places and with sizes of chance."""
    ways = [*places(message.tree), *((*path, "x-new") for path in objects(message.tree))]
    kinds = list(FILLERS)
    chance.shuffle(kinds)
    for kind in kinds:
        yield fill(message, chance.choice(ways), kind, any_size(largest, chance))


def repeated(message: Message, size: int) -> Case:
    """Return a batch of one message, each time with another id."""
    text = plain(message).frame
    count = max(2, min(900, size // (len(text) + 1)))
    parts = [text.replace(b'"call-1"', b'"call-%d"' % n) for n in range(count)]
    frame = b"[" + b",".join(parts) + b"]"
    return Case(f"a batch of {count} times {message.name}", frame, count, count * message.requests)


def with_spaces(message: Message, size: int) -> Case:
    """Return a message with a long pause between its members."""
    whole = plain(message)
    frame = whole.frame.replace(b",", b"," + b" " * size, 1)
    return whole._replace(name=f"{message.name}: {size} spaces", frame=frame)


def broken(message: Message, chance: random.Random) -> Case:
    """Return a message with some of its bytes wrong."""
    whole = plain(message)
    frame = bytearray(whole.frame)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(frame))
        if chance.random() < 0.5:
            frame[place] ^= 1 << chance.randrange(8)
        else:
            del frame[place : place + chance.choice((1, 4, 20))]
        if not frame:
            frame += b"{"
    frame = frame.replace(b"\n", b" ").replace(b"\r", b" ")  # where messages are lines, this would be two of them
    return whole._replace(name=f"{message.name}: broken", frame=bytes(frame), identity=None, sure=False)
