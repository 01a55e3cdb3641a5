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
    """How expressions of one type are expanded (RFC 6570 §3.2)."""

    first: str
    separator: str
    named: bool = False
    empty: str = ""
    reserved: bool = False


# RFC 6570, appendix A
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
SIMPLE = OPERATORS[""]
PATH = OPERATORS["/"]
QUERY = OPERATORS["?"]
QUERY_REST = OPERATORS["&"]


class Variable(Struct, frozen=True):
    """A variable name with its modifier (RFC 6570 §2.3, §2.4)."""

    name: str
    explode: bool = False
    prefix: int = 0


class Expression(Struct, frozen=True):
    """A template expression: what one pair of braces holds (RFC 6570 §2.2)."""

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
        """The variables of the path that are lists, such as `{name*}`, each with the separator of its items."""
        found: dict[str, str] = {}
        for slot in self._slots:
            if slot.operator.named:
                continue
            for variable in slot.variables:
                if variable.explode:
                    found[variable.name] = slot.operator.separator
        return found

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
        """Expand the template; a variable that has no value, or None, is left out."""
        keeps_slashes: tuple[Variable, ...] = ()
        if self._slots:
            last = self._slots[-1]
            if last.operator is SIMPLE and last.takes_slashes:
                keeps_slashes = last.variables
        uri = ""
        for part in self._parts:
            if isinstance(part, str):
                uri += part
            else:
                uri += _expand(part, values, keeps_slashes)
        return uri

    def _cut_query(self, uri: str) -> tuple[str, str | None]:
        """Cut off what belongs to `{?…}` or `{&…}`; the mark itself is dropped."""
        if self._query is None:
            return uri, None
        mark = self._query.operator.first
        at = -1
        marks = 1
        if mark == "&":
            # The literals may hold a query of their own, whose `&` come first.
            fixed = "{}".join(self._literals)
            if "?" in fixed:
                at = uri.find("?")
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
    shown = pattern
    if len(pattern) > 80:
        shown = pattern[:80] + "…"
    raise SetupError(f"bad URI template {shown!r}: {why} at position {at}")


def _parse(pattern: str) -> Iterator[str | Expression]:
    position = 0
    braces = 0
    while position < len(pattern):
        opened = pattern.find("{", position)
        if opened < 0:
            literal = pattern[position:]
        else:
            literal = pattern[position:opened]
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
    symbol = body[:1]
    if symbol not in OPERATORS:
        symbol = ""
    specs = body[len(symbol) :].split(",", MAX_VARIABLES)
    if len(specs) > MAX_VARIABLES:
        _refuse(pattern, TOO_MANY, opened)
    variables = []
    for spec in specs:
        if not spec:
            _refuse(pattern, "a variable without a name", opened)
        found = VARIABLE.fullmatch(spec)
        if found is None:
            _refuse(pattern, f"{spec[:40]!r} is not a valid variable", opened)
        variables.append(Variable(found[1], bool(found[2]), int(found[3] or 0)))
    return Expression(OPERATORS[symbol], tuple(variables), opened)


def _names(parts: Sequence[str | Expression], pattern: str) -> tuple[str, ...]:
    """Return the names of all variables; refuse a name that comes twice."""
    found: list[tuple[str, int]] = []
    for part in parts:
        if isinstance(part, Expression):
            for variable in part.variables:
                found.append((variable.name, part.at))
    if len(found) > MAX_VARIABLES:
        _refuse(pattern, TOO_MANY, found[MAX_VARIABLES][1])
    names: list[str] = []
    for name, at in found:
        if name in names:
            _refuse(pattern, f"the variable {name!r} for the second time", at)
        names.append(name)
    return tuple(names)


def _split_off_query(parts: Sequence[str | Expression], pattern: str) -> tuple[Sequence[str | Expression], Slot | None]:
    """Take the query expressions off the end, as one slot: their variables may come in any order."""
    queries: list[Expression] = []
    for part in parts:
        if isinstance(part, Expression) and part.operator in (QUERY, QUERY_REST):
            queries.append(part)
    if not queries:
        return parts, None
    first = queries[0]
    path = parts[: parts.index(first)]
    is_second = any(query.operator is QUERY for query in queries[1:])
    if is_second or len(path) + len(queries) < len(parts):
        _refuse(pattern, "a query that is not the last part", first.at)
    if first.operator is QUERY:
        for part in path:
            if isinstance(part, str) and "?" in part:
                _refuse(pattern, "a second query (write `{&` after a literal `?`)", first.at)
    variables: list[Variable] = []
    for query in queries:
        variables.extend(query.variables)
    return path, Slot(first.operator, tuple(variables), first.at, excluded="#")


def _lay_out(parts: Sequence[str | Expression], pattern: str) -> tuple[list[str], list[Slot]]:
    """Return the template as literal, slot, literal, …, literal."""
    literals = [""]
    slots = list[Slot]()
    for part in parts:
        if isinstance(part, str):
            literals[-1] += part
            continue
        groups = [part.variables]
        if not part.operator.named:
            groups = [(variable,) for variable in part.variables]
        mark = part.operator.first
        for variables in groups:
            literals[-1] += mark
            mark = part.operator.separator
            if slots and not literals[-1]:
                _refuse(pattern, f"nothing between {slots[-1].variables[-1].name!r} and {variables[0].name!r}", part.at)
            slots.append(Slot(part.operator, variables, part.at))
            literals.append("")
    return literals, slots


def _bound(slots: Sequence[Slot], literals: Sequence[str], query: Slot | None) -> list[Slot]:
    """Set for each slot whether it stands below a directory, and the characters its value cannot have."""
    bounded: list[Slot] = []
    slashes_taken = False
    for index, slot in enumerate(slots):
        ahead = "".join(literals[index + 1 :])
        if query:
            ahead += query.operator.first
        is_last = index == len(slots) - 1
        if slot.operator.reserved:
            excluded = "".join(mark for mark in "?#" if mark in ahead)
        elif slot.operator is PATH and slot.variables[0].explode:
            excluded = "?#"
        elif slot.operator is SIMPLE and is_last and not ahead and not slashes_taken:
            # The end of the template is the only slot that can take slashes: `file:///{path}`.
            excluded = "?#"
        else:
            excluded = "/?#"
        below = literals[index].endswith("/") and not literals[index].endswith("://")
        placed = msgspec.structs.replace(slot, excluded=excluded, below=below)
        slashes_taken = slashes_taken or placed.takes_slashes
        bounded.append(placed)
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
    """Return whether the first literal that follows a slot is where the slot ends."""
    if any(mark in literal for mark in slot.excluded):
        return True
    return set(neighbour.excluded) <= set(slot.excluded)


def _read_slot(slot: Slot, raw: str, values: Values) -> bool:
    """Put the decoded value of a slot into `values`; False when it may not stand there."""
    if any(mark in raw for mark in slot.excluded):
        return False
    variable = slot.variables[0]
    separator = slot.operator.separator
    if not slot.operator.named and not variable.explode:
        text = _read_text(raw, slot, variable)
        if not text:
            return False
        values[variable.name] = text
        return True
    if raw.count(separator) >= MAX_ITEMS:
        return False
    if slot.operator.named:
        return all(_read_pair(pair, slot, values) for pair in raw.split(separator))
    items: list[str] = []
    for item in raw.split(separator):
        text = _read_text(item, slot, variable)
        if not text:
            return False
        items.append(text)
    values[variable.name] = items
    return True


def _read_pair(pair: str, slot: Slot, values: Values) -> bool:
    """Read one `name=value`; a name that is not known belongs to the exploded variable, if there is just one."""
    raw_name, _, raw_text = pair.partition("=")
    variable = next((known for known in slot.variables if known.name == raw_name), None)
    text = _read_text(raw_text, slot, variable)
    if text is None:
        return False
    if variable is None:
        return _read_other(raw_name, text, slot, values)
    if not variable.explode:
        if variable.name in values:
            return False
        values[variable.name] = text
        return True
    items = values.setdefault(variable.name, [])
    if not isinstance(items, list):
        return False
    items.append(text)
    return True


def _read_other(raw_name: str, text: str, slot: Slot, values: Values) -> bool:
    """Add a pair whose name is no variable's to the exploded variable; False when there is not just one."""
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


def _expand(expression: Expression, values: Mapping[str, Any], keeps_slashes: Sequence[Variable]) -> str:
    """Expand an expression (RFC 6570 §3.2.1)."""
    operator = expression.operator
    pieces: list[str] = []
    for variable in expression.variables:
        if operator.reserved:
            safe = RESERVED
        elif variable in keeps_slashes:
            safe = "/"
        else:
            safe = ""
        pieces += _expand_variable(operator, variable, values.get(variable.name), safe)
    if pieces:
        return operator.first + operator.separator.join(pieces)
    return ""


def _expand_variable(operator: Operator, variable: Variable, value: object, safe: str) -> list[str]:
    """Return the pieces of one variable, none when it has no value."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return _expand_mapping(operator, variable, value, safe)
    if isinstance(value, (list, tuple)):
        items = [_quote(item, safe) for item in value]
        if variable.explode:
            return [_piece(operator, variable, item) for item in items]
        if not items:
            return []
        return [_piece(operator, variable, ",".join(items))]
    text = str(value)
    if variable.prefix:
        text = text[: variable.prefix]
    return [_piece(operator, variable, _quote(text, safe))]


def _expand_mapping(operator: Operator, variable: Variable, value: Mapping[Any, Any], safe: str) -> list[str]:
    """Return the pieces of an associative array: one `name=value` a pair when exploded, else one list of both."""
    empty = "="
    if operator.named:
        empty = operator.empty
    pieces: list[str] = []
    for key, item in value.items():
        name = _quote(key, safe)
        text = _quote(item, safe)
        if variable.explode:
            pieces.append(_named(name, text, empty))
        else:
            pieces.append(f"{name},{text}")
    if variable.explode or not pieces:
        return pieces
    return [_piece(operator, variable, ",".join(pieces))]


def _piece(operator: Operator, variable: Variable, text: str) -> str:
    """Return a value, after the name of its variable where the operator is named."""
    if operator.named:
        return _named(variable.name, text, operator.empty)
    return text


def _named(name: str, text: str, empty: str) -> str:
    if not text:
        return name + empty
    return f"{name}={text}"


def _quote(value: object, safe: str) -> str:
    """Percent-encode a value; a reserved expansion keeps what is encoded already (RFC 6570 §3.2.3)."""
    text = str(value)
    if safe != RESERVED:
        return quote(text, safe=safe)
    # The pattern is a group, so every second piece is a triplet.
    pieces = TRIPLET.split(text)
    for position in range(0, len(pieces), 2):
        pieces[position] = quote(pieces[position], safe=safe)
    return "".join(pieces)


def _to_ascii(text: str) -> str:
    """Write what is not ASCII as URIs do, so that an IRI and its URI are the same."""
    if text.isascii():
        return text
    return "".join(map(BYTES.__getitem__, text.encode(errors="surrogatepass")))
