"""Words of the command line as the arguments of a tool, read by the tool's own schema.

| word | value |
|---|---|
| `key=value` | what the schema wants: text, a number, a bool, an item of a list |
| `key:=json` | JSON |
| `key=@file` | the text of a file; `key:=@file` for JSON in a file |
| `-` | a JSON object from stdin |

Rule 1: where the schema takes a string, `key=value` is one; `:=` says otherwise.
Rule 2: a key that is given twice is a list, where the schema takes one.
Rule 3: the schema is a peer's: references are followed a few steps, and nothing in it is trusted to have a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ferrule.errors import SetupError
from ferrule.settings.option import alike
from ferrule.supervision.logs import cut

MAX_STEPS = 16
"""How many references and branches of a schema are followed."""
LONGEST_KIND = 80
"""How many characters are shown of what a schema takes."""
MAX_INPUT = 16 * 1024 * 1024
"""How many bytes a file or stdin may have."""
TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
UNREADABLE = object()


class ArgumentReader:
    """Reads words as the arguments of one tool."""

    def __init__(self, tool: str, schema: object, stdin: str = "") -> None:
        self._tool = tool
        self._schema = _mapping(schema)
        self._stdin = stdin
        self._properties = _mapping(self._schema.get("properties"))
        self._values: dict[str, Any] = {}
        self._given: dict[str, list[str]] = {}
        """The texts of keys that are given as `key=value`."""

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the arguments; raise SetupError for a word that is none, and for what is missing."""
        for word in words:
            self._take(word)
        for key, texts in self._given.items():
            self._values[key] = self._coerced(key, texts)
        self._require_all()
        return self._values

    def _take(self, word: str) -> None:
        if word == "-":
            if len(self._stdin) > MAX_INPUT:
                raise SetupError(f"stdin has more than {MAX_INPUT} characters, and arguments may not")
            self._values.update(self._object(self._stdin, "stdin"))
            return
        before, equals, text = word.partition("=")
        key = before.removesuffix(":")
        if not equals or not key or key.startswith(":"):
            raise SetupError(f'"{word}" is not an argument: write key=value, key:=json, key=@file, or -, JSON on stdin')
        self._require_known(key)
        where = key
        if text.startswith("@"):
            where = text[1:]
            text = file_text(where)
        if before.endswith(":"):
            self._values[key] = _json(text, where)
        else:
            self._given.setdefault(key, []).append(text)

    def _object(self, text: str, where: str) -> dict[str, Any]:
        value = _json(text, where)
        if not isinstance(value, dict):
            raise SetupError(f"{where} must be a JSON object with the arguments, not {_named(value)}")
        for key in value:
            self._require_known(key)
        return value

    def _require_known(self, key: str) -> None:
        """Refuse a key the tool does not take; one it may take is refused only where it looks like a typo."""
        if not self._properties or key in self._properties:
            return
        closed = self._schema.get("additionalProperties") is False
        meant = alike(key, self._properties, 0.6 if closed else 0.8)
        if not meant and not closed:
            return
        hint = f'. Did you mean "{meant}"?' if meant else f": it takes {', '.join(self._properties)}"
        raise SetupError(f'the tool "{self._tool}" takes no "{key}"{hint}')

    def _require_all(self) -> None:
        required = self._schema.get("required")
        if not isinstance(required, list):
            return
        missing: list[str] = []
        for key in required:
            if isinstance(key, str) and key not in self._values:
                missing.append(f"{key} ({kind_name(self._properties.get(key), self._schema)})")
        if missing:
            raise SetupError(f'the tool "{self._tool}" needs {", ".join(missing)}: write key=value')

    # -- by the schema

    def _coerced(self, key: str, texts: list[str]) -> Any:
        kinds = kinds_of(self._properties.get(key), self._schema)
        if "array" in kinds and not (len(texts) == 1 and texts[0].startswith("[")):
            items = items_of(self._properties.get(key), self._schema)
            if len(texts) > 1 or not kinds & {"string", ""}:
                return [self._value(key, text, kinds_of(items, self._schema)) for text in texts]
        if len(texts) > 1:
            raise SetupError(f'"{key}" is given {len(texts)} times, and the tool "{self._tool}" takes one')
        return self._value(key, texts[0], kinds)

    def _value(self, key: str, text: str, kinds: set[str]) -> Any:
        if "string" in kinds:
            return text
        for kind in ("null", "boolean", "integer", "number", "array", "object", ""):
            if kind in kinds:
                value = READERS[kind](text)
                if value is not UNREADABLE:
                    return value
        wanted = " or ".join(sorted(kinds))
        raise SetupError(f'"{key}" must be {wanted}, not {text!r}')


def file_text(path: str) -> str:
    """Return the text of a file; raise SetupError for one that cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as reason:
        raise SetupError(f"cannot read {path}: {reason.strerror}") from None
    if len(data) > MAX_INPUT:
        raise SetupError(f"{path} has {len(data)} bytes, and an argument may have {MAX_INPUT}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SetupError(f"{path} is not UTF-8 text, and arguments are JSON") from None


def text_arguments(words: Iterable[str]) -> dict[str, str]:
    """Read `key=value` and `key=@file` words as the arguments of a prompt, which are texts."""
    found: dict[str, str] = {}
    for word in words:
        key, mark, text = word.partition("=")
        if not mark or not key:
            raise SetupError(f'"{word}" is not an argument: write key=value, or key=@file')
        if text.startswith("@"):
            text = file_text(text[1:])
        found[key] = text
    return found


# -- schemas


def _mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return {}


def _branches(schema: object, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a schema and the schemas it stands for or is made of, without those that are references."""
    found: list[Mapping[str, Any]] = []
    waiting = [schema]
    for _ in range(MAX_STEPS):
        if not waiting:
            break
        each = _mapping(waiting.pop(0))
        reference = each.get("$ref")
        if isinstance(reference, str):
            waiting.append(_referred(reference, root))
            continue
        found.append(each)
        for word in ("anyOf", "oneOf", "allOf"):
            inner = each.get(word)
            if isinstance(inner, list):
                waiting.extend(inner)
    return found


def _referred(reference: str, root: Mapping[str, Any]) -> object:
    """Return what a reference within the same schema points at."""
    if not reference.startswith("#"):
        return {}
    place: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        place = _mapping(place).get(step.replace("~1", "/").replace("~0", "~"))
    return place


def kinds_of(schema: object, root: Mapping[str, Any]) -> set[str]:
    """Return the JSON types a schema takes; an empty name where it takes anything."""
    kinds: set[str] = set()
    for branch in _branches(schema, root):
        types = branch.get("type")
        if isinstance(types, str):
            kinds.add(types)
        elif isinstance(types, list):
            kinds.update(each for each in types if isinstance(each, str))
        choices = branch.get("enum")
        if "const" in branch:
            choices = [branch["const"]]
        if isinstance(choices, list):
            kinds.update(map(_named, choices))
    return (kinds & READERS.keys()) or {""}


def items_of(schema: object, root: Mapping[str, Any]) -> object:
    """Return the schema of the items of a list."""
    for branch in _branches(schema, root):
        if "items" in branch:
            return branch["items"]
    return {}


def kind_name(schema: object, root: Mapping[str, Any]) -> str:
    """Return what a schema takes, in a few words: `integer`, `string or null`, `one of red, green`."""
    for branch in _branches(schema, root):
        choices = branch.get("enum")
        if isinstance(choices, list) and 0 < len(choices) <= MAX_STEPS:
            return cut("one of " + ", ".join(map(str, choices)), LONGEST_KIND)
    return " or ".join(sorted(kinds_of(schema, root))) or "anything"


# -- one value


def _named(value: object) -> str:
    """Return the name of a JSON value's type."""
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _json(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise SetupError(f"{where} is not JSON: {reason}") from None


def _boolean(text: str) -> object:
    lower = text.strip().lower()
    if lower in TRUE:
        return True
    if lower in FALSE:
        return False
    return UNREADABLE


def _integer(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        return UNREADABLE


def _number(text: str) -> object:
    try:
        value = float(text)
    except ValueError:
        return UNREADABLE
    # JSON knows neither infinities nor NaN.
    if value - value != 0:
        return UNREADABLE
    return value


def _null(text: str) -> object:
    if text.strip().lower() in ("null", "none", ""):
        return None
    return UNREADABLE


def _structure(kind: type) -> Callable[[str], object]:
    def read(text: str) -> object:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return UNREADABLE
        if isinstance(value, kind):
            return value
        return UNREADABLE

    return read


def _anything(text: str) -> object:
    """Return JSON where it is some, and the text as it is where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


READERS: dict[str, Callable[[str], object]] = {
    "string": str,
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _structure(list),
    "object": _structure(dict),
    "": _anything,
}
"""How a text is read as a value of each JSON type; the empty name is that of anything."""
