"""YAML values that stand on one line: plain and quoted words, flow lists and flow objects."""

from __future__ import annotations

import math
import re

NULL = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FRACTION = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
ESCAPES = dict(zip('0abtnvfre "/\\N_LP', '\0\a\b\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True))
CODES = {"x": 2, "u": 4, "U": 8}
SPECIAL = "&*!|>%@`,[]{}#\"'"
"""What a plain word cannot begin with."""
SIGNS = ",[]{}"
"""What ends a plain word inside a list or an object."""
MOST_DIGITS = 300
MAX_DEPTH = 32


class Malformed(ValueError):
    """Front matter that cannot be read, and why."""


def require_depth(depth: int) -> None:
    """Raise Malformed for a list or an object that stands in too many others."""
    if depth >= MAX_DEPTH:
        raise Malformed(f"it is nested more than {MAX_DEPTH} levels deep")


def plain(text: str) -> object:
    """Return the value of a plain word: null, a boolean, a number, or the word itself."""
    if text in NULL:
        return None
    if text in BOOLEAN:
        return BOOLEAN[text]
    if len(text) <= MOST_DIGITS:
        if WHOLE.fullmatch(text):
            if text[:2] in ("0o", "0x"):
                return int(text, 0)
            return int(text)
        if NOT_JSON.fullmatch(text) or (FRACTION.fullmatch(text) and math.isinf(float(text))):
            raise Malformed(f"{text} is not a number that JSON has; put it in quotes")
        if FRACTION.fullmatch(text):
            return float(text)
    if text[0] in SPECIAL or text in ("-", "?", ":") or text[:2] in ("- ", "? "):
        raise Malformed(f"{_quoted(text)} begins with a sign that means something else; put it in quotes")
    if re.search(r":(?:\s|$)", text):
        raise Malformed(f'{_quoted(text)} has ": " in it, which begins a value; put it in quotes')
    return text


def uncommented(text: str) -> str:
    """Leave out the comment at the end of a line, unless it is inside quotes."""
    quote = ""
    skip = -1
    for place, sign in enumerate(text):
        if place == skip:
            continue
        if quote:
            if sign == quote == text[place + 1 : place + 2] == "'" or (sign == "\\" and quote == '"'):
                skip = place + 1
            elif sign == quote:
                quote = ""
        elif sign in "\"'" and (place == 0 or text[place - 1] in " [{,:"):
            quote = sign
        elif sign == "#" and (place == 0 or text[place - 1] in " \t"):
            return text[:place].rstrip()
    return text.rstrip()


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


class Flow:
    """Reads one value from a text that holds nothing else."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self._text = text
        self._depth = depth
        """How many lists and objects the value stands in."""
        self._at = 0

    def read(self) -> object:
        """Read the value; nothing may follow."""
        value = self._value("", self._depth)
        self._space()
        if self._at < len(self._text):
            raise Malformed(f"{_quoted(self._text[self._at :])} follows a value that has ended")
        return value

    def _space(self) -> None:
        while self._at < len(self._text):
            if self._comment():
                end = self._text.find("\n", self._at)
                if end < 0:
                    self._at = len(self._text)
                else:
                    self._at = end
            elif self._text[self._at] in " \t\n":
                self._at += 1
            else:
                return

    def _comment(self) -> bool:
        return self._text[self._at] == "#" and self._text[self._at - 1 : self._at] in (" ", "\t", "\n", "")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _value(self, ends: str, depth: int) -> object:
        self._space()
        sign = self._peek()
        if sign and sign in "[{":
            require_depth(depth)
        if sign == "[":
            return self._list(depth)
        if sign == "{":
            return self._object(depth)
        if sign == '"':
            return self._double()
        if sign == "'":
            return self._single()
        return plain(self._word(ends))

    def _word(self, ends: str) -> str:
        start = self._at
        while self._at < len(self._text):
            sign = self._text[self._at]
            value = sign == ":" and self._text[self._at + 1 : self._at + 2] in ("", " ", "\n", *ends)
            if sign in ends or value or self._comment():
                break
            self._at += 1
        return " ".join(self._text[start : self._at].split())

    def _list(self, depth: int) -> list[object]:
        self._at += 1
        items: list[object] = []
        while True:
            self._space()
            if self._peek() == "]":
                self._at += 1
                return items
            self._require_more("list")
            items.append(self._value(SIGNS, depth + 1))
            self._comma("]", "list")

    def _object(self, depth: int) -> dict[str, object]:
        self._at += 1
        members: dict[str, object] = {}
        while True:
            self._space()
            if self._peek() == "}":
                self._at += 1
                return members
            self._require_more("object")
            key = self._value(SIGNS, depth + 1)
            self._space()
            value = None
            if self._peek() == ":":
                self._at += 1
                value = self._value(SIGNS, depth + 1)
            keep(members, key, value)
            self._comma("}", "object")

    def _comma(self, end: str, kind: str) -> None:
        self._space()
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != end:
            self._require_more(kind)
            raise Malformed(f"{_quoted(self._text[self._at :])} stands where a comma or the end of a {kind} belongs")

    def _require_more(self, kind: str) -> None:
        if self._at >= len(self._text):
            raise Malformed(f"a {kind} is not closed: {_quoted(self._text)}")

    def _single(self) -> str:
        found = re.compile(r"'((?:[^']|'')*+)'").match(self._text, self._at)
        if found is None:
            raise Malformed(f"a quote is not closed: {_quoted(self._text[self._at :])}")
        self._at = found.end()
        return folded(_lines(found[1])).replace("''", "'")

    def _double(self) -> str:
        parts: list[str] = []
        self._at += 1
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign == '"':
                return "".join(parts)
            if sign == "\n":
                self._line_end(parts)
            else:
                parts.append(self._escape() if sign == "\\" else sign)
        raise Malformed(f"a quote is not closed: {_quoted(self._text)}")

    def _line_end(self, parts: list[str]) -> None:
        """Fold a line end inside double quotes: alone it is a space, before empty lines it is none."""
        while parts and parts[-1] in (" ", "\t"):
            parts.pop()
        rest = self._text[self._at :]
        gap = rest[: len(rest) - len(rest.lstrip(" \t\n"))]
        self._at += len(gap)
        parts.append("\n" * gap.count("\n") or " ")

    def _escape(self) -> str:
        sign = self._peek()
        self._at += 1
        if not sign:
            raise Malformed(f"a quote is not closed: {_quoted(self._text)}")
        if sign == "\n":
            while self._peek() and self._peek() in " \t":
                self._at += 1
            return ""
        if sign in CODES:
            digits = self._text[self._at : self._at + CODES[sign]]
            self._at += CODES[sign]
            if re.fullmatch(rf"[0-9a-fA-F]{{{CODES[sign]}}}", digits) and int(digits, 16) < 0x110000:
                return chr(int(digits, 16))
        elif sign in ESCAPES:
            return ESCAPES[sign]
        raise Malformed(f"there is no escape \\{sign} in a double-quoted text")


def folded(lines: list[str]) -> str:
    """Join lines as YAML does: a line end is a space, an empty line is a line end."""
    joined = [lines[0]]
    empty = 0
    for line in lines[1:-1]:
        if line:
            joined += ["\n" * empty or " ", line]
            empty = 0
        else:
            empty += 1
    if len(lines) > 1:
        joined += ["\n" * empty or " ", lines[-1]]
    return "".join(joined)


def _lines(text: str) -> list[str]:
    """Split at line ends; the spaces at the two ends of the whole are part of it."""
    lines = text.split("\n")
    if len(lines) == 1:
        return [text]
    return [lines[0].rstrip(), *(line.strip() for line in lines[1:-1]), lines[-1].lstrip()]


def keep(members: dict[str, object], key: object, value: object) -> None:
    """Add a member to an object, once."""
    if not isinstance(key, str):
        raise Malformed(f"the key {key!r} is not text; put it in quotes")
    if key == "<<":
        raise Malformed("merged keys (<<) are not read; write the members out")
    if key in members:
        raise Malformed(f"the key {key!r} is there twice")
    members[key] = value
