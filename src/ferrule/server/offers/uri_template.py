"""Resource templates (RFC 6570): which URIs one stands for, and how to fill it.

Rule 1: the peer chooses the URI, so matching is a fixed number of passes over it; nothing is tried a second time.
Rule 2: a value is decoded once, and one that could walk out of its place is no match.
Rule 3: a template that could be read in two ways is refused when it is made, not when it is matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError

MAX_VARIABLES = 64
MAX_ITEMS = 1024
TOO_MANY = f"more than {MAX_VARIABLES} variables"

BYTES = [chr(byte) if byte < 128 else f"%{byte:02X}" for byte in range(256)]
RESERVED = ":/?#[]@!$&'()*+,;="
VARIABLE = re.compile(
    r"((?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*)(?:(\*)|:([1-9][0-9]{0,3}))?"
)
TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")
BROKEN_TRIPLET = re.compile(r"%(?![0-9A-Fa-f]{2})")

Value = str | list[str] | dict[str, str]
Values = dict[str, Value]


class Operator(Struct, frozen=True):
    """How the expressions of one kind look in a URI."""

    first: str
    separator: str
    named: bool = False
    empty: str = ""
    reserved: bool = False


OPERATORS = {
    "": Operator("", ","),
    "+": Operator("", ",", reserved=True),
    "#": Operator("#", ",", reserved=True),
    ".": Operator(".", "."),
    "/": Operator("/", "/"),
    ";": Operator(";", ";", named=True),
    "?": Operator("?", "&", named=True, empty="="),
    "&": Operator("&", "&", named=True, empty="="),
}
SIMPLE, PATH, QUERY, QUERY_REST = (OPERATORS[symbol] for symbol in ("", "/", "?", "&"))


class Variable(Struct, frozen=True):
    """One name between braces, with its modifier."""

    name: str
    explode: bool = False
    prefix: int = 0


class Expression(Struct, frozen=True):
    """One pair of braces."""

    operator: Operator
    variables: tuple[Variable, ...]
    at: int


class Slot(Expression, frozen=True):
    """The stretch of a URI that belongs to one variable, or to all the named ones of an expression."""

    excluded: str = "/?#"
    below: bool = False
    """Whether it stands below a directory: right after a slash that is part of a path, not of `scheme://`."""

    @property
    def takes_slashes(self) -> bool:
        """Whether the stretch may go on beyond a slash."""
        return "/" not in self.excluded

    @property
    def holds_slashes(self) -> bool:
        """Whether one value in it may have a slash."""
        return self.takes_slashes and self.operator is not PATH

    @property
    def may_be_rooted(self) -> bool:
        """Whether a value in it may begin like an absolute path."""
        return (self.operator.reserved and not self.below) or self.operator in (QUERY, QUERY_REST)


class UriTemplate:
    """A pattern such as `user://{name}/profile`, matched as a whole."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts = list(_parse(pattern))
        self.variables = _names(self._parts, pattern)
        self.is_template = bool(self.variables)
        path, self._query = _split_off_query(self._parts, pattern)
        self._literals, slots = _lay_out(path, pattern)
        self._slots = _bound(slots, self._literals, self._query)
        self._pivot = _pivot(self._slots, self._literals, pattern)

    @property
    def lists(self) -> dict[str, str]:
        """The variables of the path that are lists, such as `{name*}`, each with what stands between its items."""
        found = ((each, slot.operator) for slot in self._slots for each in slot.variables)
        return {each.name: how.separator for each, how in found if each.explode and not how.named}

    def match(self, uri: str) -> Values | None:
        """Return the decoded value of each variable the URI has, or None when it is not one of this template's."""
        if not self.pattern.isascii():
            uri = _to_ascii(uri)
        if BROKEN_TRIPLET.search(uri):
            return None
        path, query = self._cut_query(uri)
        stretches = self._cut(path)
        if stretches is None:
            return None
        values: Values = {}
        for slot, raw in zip(self._slots, stretches, strict=True):
            if not _read_slot(slot, raw, values):
                return None
        if self._query and query is not None and not _read_slot(self._query, query, values):
            return None
        return values

    def expand(self, /, **values: object) -> str:
        """Fill the template; what has no value, or None, is left out."""
        last = self._slots[-1] if self._slots else None
        if last and last.operator is SIMPLE and last.takes_slashes:
            keeps_slashes = last.variables
        else:
            keeps_slashes = ()
        return "".join(part if isinstance(part, str) else _fill(part, values, keeps_slashes) for part in self._parts)

    def _cut_query(self, uri: str) -> tuple[str, str | None]:
        """Cut off what belongs to `{?…}` or `{&…}`; the mark itself is dropped."""
        if self._query is None:
            return uri, None
        mark = self._query.operator.first
        at = -1
        marks = 1
        if mark == "&":
            fixed = "{}".join(self._literals)
            if "?" in fixed:
                at = uri.find("?")
            else:
                at = -1
            marks += fixed.count("&", fixed.find("?") + 1)
        for _ in range(marks):
            at = uri.find(mark, at + 1)
            if at < 0:
                return uri, None
        return uri[:at], uri[at + 1 :]

    def _cut(self, uri: str) -> list[str] | None:
        """Cut the URI into its slots: up to the pivot from the left, beyond it from the right."""
        literals = self._literals
        pivot = self._pivot
        if not self._slots:
            if uri == literals[0]:
                return []
            return None
        low = len(literals[0])
        high = len(uri) - len(literals[-1])
        if not (uri.startswith(literals[0]) and uri.endswith(literals[-1])):
            return None
        before: list[str] = []
        for literal in literals[1 : pivot + 1]:
            at = uri.find(literal, low + 1, high)
            if at < 0:
                return None
            before.append(uri[low:at])
            low = at + len(literal)
        after: list[str] = []
        for literal in literals[-2:pivot:-1]:
            at = uri.rfind(literal, low, high - 1)
            if at < 0:
                return None
            after.append(uri[at + len(literal) : high])
            high = at
        return [*before, uri[low:high], *reversed(after)]


def _refuse(pattern: str, why: str, at: int) -> NoReturn:
    shown = pattern if len(pattern) <= 80 else pattern[:80] + "…"
    raise SetupError(f"bad URI template {shown!r}: {why} at position {at}")


def _parse(pattern: str) -> Iterator[str | Expression]:
    position = braces = 0
    while position < len(pattern):
        opened = pattern.find("{", position)
        literal = pattern[position:] if opened < 0 else pattern[position:opened]
        if "}" in literal:
            _refuse(pattern, "a closing brace without an opening one", position + literal.index("}"))
        if literal:
            yield _to_ascii(literal)
        if opened < 0:
            return
        braces += 1
        if braces > MAX_VARIABLES:
            _refuse(pattern, TOO_MANY, opened)
        closed = pattern.find("}", opened)
        if closed < 0:
            _refuse(pattern, "a brace that is never closed", opened)
        if "{" in pattern[opened + 1 : closed]:
            _refuse(pattern, "a brace inside braces", pattern.index("{", opened + 1))
        yield _parse_expression(pattern, opened, closed)
        position = closed + 1


def _parse_expression(pattern: str, opened: int, closed: int) -> Expression:
    body = pattern[opened + 1 : closed]
    symbol = body[:1] if body[:1] in OPERATORS else ""
    written = body[len(symbol) :].split(",", MAX_VARIABLES)
    if len(written) > MAX_VARIABLES:
        _refuse(pattern, TOO_MANY, opened)
    variables = []
    for text in written:
        found = VARIABLE.fullmatch(text)
        if found is None:
            _refuse(pattern, f"{text[:40]!r} is no variable" if text else "a variable without a name", opened)
        variables.append(Variable(found[1], bool(found[2]), int(found[3] or 0)))
    return Expression(OPERATORS[symbol], tuple(variables), opened)


def _names(parts: Sequence[str | Expression], pattern: str) -> tuple[str, ...]:
    found = [(variable.name, part.at) for part in parts if isinstance(part, Expression) for variable in part.variables]
    if len(found) > MAX_VARIABLES:
        _refuse(pattern, TOO_MANY, found[MAX_VARIABLES][1])
    names: dict[str, int] = {}
    for name, at in found:
        if name in names:
            _refuse(pattern, f"the variable {name!r} for the second time", at)
        names[name] = at
    return tuple(names)


def _split_off_query(parts: Sequence[str | Expression], pattern: str) -> tuple[Sequence[str | Expression], Slot | None]:
    """Take the query expressions off the end, as one slot: their variables may come in any order."""
    queries = []
    for part in parts:
        if isinstance(part, Expression) and part.operator in (QUERY, QUERY_REST):
            queries.append(part)
    if not queries:
        return parts, None
    first = queries[0]
    path = parts[: parts.index(first)]
    if len(path) + len(queries) < len(parts) or any(query.operator is QUERY for query in queries[1:]):
        _refuse(pattern, "a query that is not the last part", first.at)
    if first.operator is QUERY and any("?" in part for part in path if isinstance(part, str)):
        _refuse(pattern, "a second query (write `{&` after a literal `?`)", first.at)
    variables = tuple(variable for query in queries for variable in query.variables)
    return path, Slot(first.operator, variables, first.at, excluded="#")


def _lay_out(parts: Sequence[str | Expression], pattern: str) -> tuple[list[str], list[Slot]]:
    """Return the template as literal, slot, literal, …, literal."""
    literals = [""]
    slots = list[Slot]()
    for part in parts:
        if isinstance(part, str):
            literals[-1] += part
            continue
        mark = part.operator.first
        for variables in [part.variables] if part.operator.named else [(single,) for single in part.variables]:
            literals[-1] += mark
            mark = part.operator.separator
            if slots and not literals[-1]:
                _refuse(pattern, f"nothing between {slots[-1].variables[-1].name!r} and {variables[0].name!r}", part.at)
            slots.append(Slot(part.operator, variables, part.at))
            literals.append("")
    return literals, slots


def _bound(slots: Sequence[Slot], literals: Sequence[str], query: Slot | None) -> list[Slot]:
    """Settle for each slot where it stands, and the characters at which it must have ended."""
    bounded: list[Slot] = []
    for index, slot in enumerate(slots):
        ahead = "".join(literals[index + 1 :]) + (query.operator.first if query else "")
        opens = index == len(slots) - 1 and not ahead and not any(earlier.takes_slashes for earlier in bounded)
        if slot.operator.reserved:
            excluded = "".join(mark for mark in "?#" if mark in ahead)
        elif (slot.operator is PATH and slot.variables[0].explode) or (slot.operator is SIMPLE and opens):
            excluded = "?#"
        else:
            excluded = "/?#"
        below = literals[index].endswith("/") and not literals[index].endswith("://")
        bounded.append(msgspec.structs.replace(slot, excluded=excluded, below=below))
    return bounded


def _pivot(slots: Sequence[Slot], literals: Sequence[str], pattern: str) -> int:
    """Choose the slot that takes what the others leave.

    Ending a slot at the first place where its literal follows is right when the next slot can hold whatever this one
    could have gone on with. The first slot for which that fails is the pivot; the mirror of it must hold beyond.
    """
    pivot = max(len(slots) - 1, 0)
    for index, (slot, following) in enumerate(pairwise(slots)):
        if not _ends_surely(slot, literals[index + 1], following):
            pivot = index
            break
    for index in range(len(slots) - 1, pivot, -1):
        if not _ends_surely(slots[index], literals[index], slots[index - 1]):
            names = f"{slots[pivot].variables[0].name!r} and {slots[index - 1].variables[0].name!r}"
            _refuse(pattern, f"{names} both take slashes, so they cannot be told apart", slots[index - 1].at)
    return pivot


def _ends_surely(slot: Slot, literal: str, neighbour: Slot) -> bool:
    return any(mark in literal for mark in slot.excluded) or set(neighbour.excluded) <= set(slot.excluded)


def _read_slot(slot: Slot, raw: str, values: Values) -> bool:
    """Put the decoded value of a slot into `values`; False when it may not stand there."""
    if any(mark in raw for mark in slot.excluded):
        return False
    variable = slot.variables[0]
    separator = slot.operator.separator
    if not slot.operator.named and not variable.explode:
        text = values[variable.name] = _read_text(raw, slot, variable) or ""
        return bool(text)
    if raw.count(separator) >= MAX_ITEMS:
        return False
    if slot.operator.named:
        return all(_read_pair(pair, slot, values) for pair in raw.split(separator))
    items = [_read_text(item, slot, variable) or "" for item in raw.split(separator)]
    values[variable.name] = items
    return all(items)


def _read_pair(pair: str, slot: Slot, values: Values) -> bool:
    """Read one `name=value`; a name that is not known belongs to the exploded variable, if there is just one."""
    raw_name, _, raw_text = pair.partition("=")
    variable = next((known for known in slot.variables if known.name == raw_name), None)
    text = _read_text(raw_text, slot, variable)
    if text is None:
        return False
    if variable is None:
        return _read_other(raw_name, text, slot, values)
    if not variable.explode and variable.name in values:
        return False
    value = values.setdefault(variable.name, [] if variable.explode else text)
    if isinstance(value, list):
        value.append(text)
    return not isinstance(value, dict)


def _read_other(raw_name: str, text: str, slot: Slot, values: Values) -> bool:
    exploded = []
    for variable in slot.variables:
        if variable.explode:
            exploded.append(variable.name)
    name = _read_text(raw_name, slot)
    if not name or len(exploded) != 1:
        return False
    group = values.setdefault(exploded[0], {})
    if not isinstance(group, dict) or name in group:
        return False
    group[name] = text
    return True


def _read_text(raw: str, slot: Slot, variable: Variable | None = None) -> str | None:
    """Decode once; None when the text is no text or could walk out of its place."""
    try:
        text = unquote(raw, errors="strict")
        text.encode()
    except UnicodeError:
        return None
    if "\0" in text or ("/" in text and not slot.holds_slashes):
        return None
    if variable and variable.prefix and len(text) > variable.prefix:
        return None
    # A backslash separates where the server runs on Windows.
    segments = text.replace("\\", "/").split("/")
    rooted = len(segments) > 1 and not segments[0] and not slot.may_be_rooted
    if rooted or "." in segments or ".." in segments:
        return None
    return text


def _fill(expression: Expression, values: Mapping[str, Any], keeps_slashes: Sequence[Variable]) -> str:
    operator = expression.operator
    filled: list[str] = []
    for variable in expression.variables:
        if operator.reserved:
            safe = RESERVED
        elif variable in keeps_slashes:
            safe = "/"
        else:
            safe = ""
        filled += _fill_variable(operator, variable, values.get(variable.name), safe)
    if filled:
        return operator.first + operator.separator.join(filled)
    return ""


def _fill_variable(operator: Operator, variable: Variable, value: object, safe: str) -> list[str]:
    """Return the pieces of one variable, none when it has no value."""
    if value is None or (isinstance(value, (Mapping, list, tuple)) and not value):
        return []
    if isinstance(value, Mapping):
        pairs = [(_quote(name, safe), _quote(item, safe)) for name, item in value.items()]
        if variable.explode:
            return [_named(name, text, operator.empty if operator.named else "=") for name, text in pairs]
        text = ",".join(f"{name},{text}" for name, text in pairs)
    elif isinstance(value, (list, tuple)):
        texts = [_quote(item, safe) for item in value]
        if variable.explode:
            if operator.named:
                return [_named(variable.name, text, operator.empty) for text in texts]
            return texts
        text = ",".join(texts)
    else:
        text = _quote(str(value)[: variable.prefix or None], safe)
    return [_named(variable.name, text, operator.empty) if operator.named else text]


def _named(name: str, text: str, empty: str) -> str:
    return f"{name}={text}" if text else name + empty


def _quote(value: object, safe: str) -> str:
    text = str(value)
    if safe != RESERVED:
        return quote(text, safe=safe)
    # A reserved expansion lets what is encoded already pass through.
    return "".join(piece if place % 2 else quote(piece, safe=safe) for place, piece in enumerate(TRIPLET.split(text)))


def _to_ascii(text: str) -> str:
    """Write what is not ASCII as URIs do, so that an IRI and its URI are the same."""
    if text.isascii():
        return text
    return "".join(map(BYTES.__getitem__, text.encode(errors="surrogatepass")))
