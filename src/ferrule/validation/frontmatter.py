"""Front matter: the YAML between `---` lines at the head of a Markdown file, read as JSON values.

The YAML people write there is read: nested objects and lists, flow forms, quoted, plain and block texts, with the
values of YAML 1.2. What lets a short text stand for a huge or a foreign value is refused: anchors, aliases, tags.
"""

from __future__ import annotations

import re

from ferrule.validation.yaml_scalars import Flow, Malformed, folded, keep, plain, require_depth, uncommented

MAX_SIZE = 16 * 1024
"""How long front matter may be, in characters."""
MAX_LINES = 256
"""How many lines a quoted text, a flow list or a flow object may take."""
MAX_READ = 4 * MAX_SIZE
"""How many characters of one such value are read, all attempts together: it is read anew with every line that may close
it."""
CLOSING = "]}\"'"

# A line is read in one way only: were its end told in two, a file without a second `---` would be tried for ever.
_HEAD = re.compile(r"\ufeff?---[ \t]*\r?\n(?P<yaml>(?:[^\n]*\n)*?)---[ \t]*(?:\r?\n|\Z)")
# Blanks are given back to nobody and the rest takes whatever follows, so the first colon before a blank decides.
_KEY = re.compile(r"""(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'\[{][^#]*?):(?:[ \t]++(?P<rest>(?s:.*))|\Z)""")
_BLOCK = re.compile(r"(?P<style>[|>])(?P<marks>[+-]?[1-9]?|[1-9][+-])(?:[ \t]+#.*)?")


def front_matter(document: str) -> tuple[dict[str, object], str]:
    """Return the front matter of a document, and the text after it; raises Malformed when there is none to read."""
    found = _HEAD.match(document[: MAX_SIZE + 16])
    if found is None or len(found["yaml"]) > MAX_SIZE:
        raise Malformed(
            f"it does not begin with front matter between two lines `---`, of at most {MAX_SIZE} characters"
        )
    return read_yaml(found["yaml"]), document[found.end() :]


def read_yaml(text: str) -> dict[str, object]:
    """Read a YAML object."""
    value = _Lines(text).document()
    if not isinstance(value, dict):
        raise Malformed("the front matter is not an object: write members such as `name: my-skill`")
    return value


class _Lines:
    """The lines of a document, read from the first to the last."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._at = 0

    def document(self) -> object:
        try:
            value = self._block(0, 0)
            if self._here() is not None:
                raise Malformed("it is indented less or more than what it belongs to")
        except Malformed as reason:
            number = min(self._at + 1, len(self._lines))
            raise Malformed(f"front matter, line {number}: {reason}") from None
        return value

    def _here(self) -> tuple[int, str] | None:
        """Return the indentation and the text of the next line that says something; None at the end."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            text = line.lstrip(" ")
            if text.startswith("\t") and text.strip():
                raise Malformed("it is indented with a tab; use spaces")
            if uncommented(text):
                return len(line) - len(text), text
            self._at += 1
        return None

    def _block(self, least: int, depth: int) -> object:
        """Read an object or a list whose lines are indented by at least so much; None when there is none."""
        here = self._here()
        if here is None or here[0] < least:
            return None
        indent, text = here
        if _is_item(text):
            return self._list(indent, depth)
        if _KEY.fullmatch(uncommented(text)):
            return self._object(indent, depth)
        return self._scalar(text, least - 1, depth)

    def _object(self, indent: int, depth: int) -> dict[str, object]:
        require_depth(depth)
        members: dict[str, object] = {}
        while (here := self._here()) is not None and here[0] == indent and not _is_item(here[1]):
            found = _KEY.fullmatch(uncommented(here[1]))
            if found is None:
                raise Malformed("there is no `key: value` in it")
            key = found["key"].rstrip()
            if key[0] in "\"'":
                key = Flow(key).read()
            else:
                key = plain(key)
            keep(members, key, self._member(found["rest"], indent, depth))
        return members

    def _member(self, rest: str | None, indent: int, depth: int) -> object:
        if rest:
            return self._scalar(rest, indent, depth + 1)
        self._at += 1
        here = self._here()
        # A list may stand right below its key, without being indented.
        if here is not None and here[0] == indent and _is_item(here[1]):
            return self._list(indent, depth + 1)
        return self._block(indent + 1, depth + 1)

    def _list(self, indent: int, depth: int) -> list[object]:
        require_depth(depth)
        items: list[object] = []
        while (here := self._here()) is not None and here[0] == indent and _is_item(here[1]):
            rest = here[1][1:].lstrip(" ")
            if not uncommented(rest):
                self._at += 1
                items.append(self._block(indent + 1, depth + 1))
            elif _is_item(rest) or _KEY.fullmatch(uncommented(rest)):
                # What follows the dash begins a block of its own, at the column where it stands.
                column = indent + len(here[1]) - len(rest)
                self._lines[self._at] = " " * column + rest
                items.append(self._block(column, depth + 1))
            else:
                items.append(self._scalar(rest, indent, depth + 1))
        return items

    def _scalar(self, rest: str, indent: int, depth: int) -> object:
        """Read a value that begins on this line and goes on in lines that are indented more."""
        block = _BLOCK.fullmatch(rest.rstrip())
        self._at += 1
        if block is not None:
            return self._text(block["style"], block["marks"], indent)
        if rest[0] in "\"'[{":
            return self._flow(rest, indent, depth)
        words = [uncommented(rest)]
        while (more := self._deeper(indent)) is not None:
            words.append(more)
        while not words[-1]:
            words.pop()
        return plain(folded(words))

    def _flow(self, rest: str, indent: int, depth: int) -> object:
        words = [rest]
        read = 0
        while True:
            text = "\n".join(words)
            read += len(text)
            if read > MAX_READ:
                raise Malformed("a value over several lines takes too long to read; write it on fewer lines")
            try:
                return Flow(text, depth).read()
            except Malformed as reason:
                if "not closed" not in str(reason) or not self._goes_on(words, indent):
                    self._at -= 1
                    raise

    def _goes_on(self, words: list[str], indent: int) -> bool:
        """Add the lines up to the next that may close a value; whether there is one."""
        while (more := self._deeper(indent, raw=True)) is not None:
            if len(words) >= MAX_LINES:
                raise Malformed(f"a value goes on for more than {MAX_LINES} lines")
            words.append(more)
            if any(sign in more for sign in CLOSING):
                return True
        return False

    def _deeper(self, indent: int, *, raw: bool = False) -> str | None:
        """Return the next line if it goes on with the value before it."""
        if self._at >= len(self._lines):
            return None
        line = self._lines[self._at]
        text = line.lstrip(" ")
        if text and len(line) - len(text) <= indent:
            return None
        if not raw and text.startswith("#"):
            return None
        self._at += 1
        if raw:
            return text.rstrip()
        return uncommented(text)

    def _text(self, style: str, marks: str, indent: int) -> str:
        """Read a block text; the marks say how much it is indented, and what becomes of the line ends after it."""
        chomp = marks.strip("123456789")
        digit = marks.strip("+-")
        lines: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            lines.append(line)
            self._at += 1
        if digit:
            margin = indent + int(digit)
        else:
            margin = _margin(lines)
        lines = [line[margin:] for line in lines]
        ends = len(lines)
        while ends and not lines[ends - 1].strip():
            ends -= 1
        kept = lines[:ends]
        spare = len(lines) - ends
        if style == "|":
            body = "\n".join(kept)
        else:
            body = _folded_block(kept)
        if chomp == "-" or not kept:
            return body + "\n" * (spare if chomp == "+" else 0)
        return body + "\n" * (1 + (spare if chomp == "+" else 0))


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _margin(lines: list[str]) -> int:
    """Return by how much the lines of a block are indented, but for blank ones."""
    margins = []
    for line in lines:
        if line.strip():
            margins.append(len(line) - len(line.lstrip(" ")))
    return min(margins, default=0)


def _folded_block(lines: list[str]) -> str:
    """Fold a block text: lines that are indented more, and the line ends around them, are kept as they are."""
    parts: list[str] = []
    before = ""
    held = 0
    for line in lines:
        if not line.strip():
            held += 1
            continue
        if parts:
            loose = before.startswith((" ", "\t")) or line.startswith((" ", "\t"))
            parts.append("\n" * (held + 1) if loose else ("\n" * held or " "))
        else:
            parts.append("\n" * held)
        parts.append(line)
        before = line
        held = 0
    return "".join(parts)
