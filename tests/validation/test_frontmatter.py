"""Front matter: the YAML people write, and nothing that could hurt whoever reads it."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ferrule.validation.frontmatter import MAX_LINES, MAX_SIZE, front_matter, read_yaml
from ferrule.validation.yaml_scalars import MAX_DEPTH, Malformed

DOCUMENT = """---
name: pdf-processing   # what it is called
description: >-
  Extract, fill
  and assemble

  PDFs
license: Apache-2.0
allowed-tools: Bash(git:*) Read
metadata:
  version: "2.1.0"
  count: 3
  ratio: 1.5
  on: true
  nothing:
  authors: [Ada, 'O''Hara', {name: "Grace, H."}]
  steps:
  - first
  - do: this
    then: that
  -
    alone: yes
homepage: http://example.com/a#b
since: 2024-01-01
text: |
  one
    two

  three
plain goes on: here
  and here

  and there
quoted: "two \\
  lines \\u00e9"
spread: [one,
  two]  # both
---
# Body
"""

VALUES: dict[str, Any] = {
    "name": "pdf-processing",
    "description": "Extract, fill and assemble\nPDFs",
    "license": "Apache-2.0",
    "allowed-tools": "Bash(git:*) Read",
    "metadata": {
        "version": "2.1.0",
        "count": 3,
        "ratio": 1.5,
        "on": True,
        "nothing": None,
        "authors": ["Ada", "O'Hara", {"name": "Grace, H."}],
        "steps": ["first", {"do": "this", "then": "that"}, {"alone": "yes"}],
    },
    "homepage": "http://example.com/a#b",
    "since": "2024-01-01",
    "text": "one\n  two\n\nthree\n",
    "plain goes on": "here and here\nand there",
    "quoted": "two lines é",
    "spread": ["one", "two"],
}


def test_what_people_write_is_read() -> None:
    assert front_matter(DOCUMENT) == (VALUES, "# Body\n")


def test_line_ends_and_a_byte_order_mark_of_windows_make_no_difference() -> None:
    assert front_matter("\ufeff" + DOCUMENT.replace("\n", "\r\n"))[0] == VALUES


@pytest.mark.parametrize(
    ("yaml", "value"),
    [
        ("~", None),
        ("null", None),
        ("True", True),
        ("yes", "yes"),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.2.3", "1.2.3"),
        ("12:30", "12:30"),
        ("a#b", "a#b"),
        ("'#b'", "#b"),
        ('"\\x41\\t\\U0001F600"', "A\t\U0001f600"),
        ("[]", []),
        ("{}", {}),
        ("{a, b: 1}", {"a": None, "b": 1}),
        ("[a b, 'c, d',]", ["a b", "c, d"]),
        ("|\n    in\n   out", " in\nout\n"),
        ("|1\n    in\n   out", "   in\n  out\n"),
        ("|-\n  a\n\n", "a"),
        ("|+\n  a\n", "a\n\n"),
        (">\n  a\n  b\n\n  c\n    d\n  e", "a b\nc\n  d\ne\n"),
    ],
)
def test_a_value_is_what_yaml_1_2_says(yaml: str, value: Any) -> None:
    assert read_yaml(f"key: {yaml}\n") == {"key": value}


@pytest.mark.parametrize(
    ("yaml", "why"),
    [
        ("key: a: b", 'has ": " in it'),
        ("key: &anchor x", "begins with a sign"),
        ("key: *alias", "begins with a sign"),
        ("key: !!python/object/apply:os.system [ls]", "begins with a sign"),
        ("<<: {a: 1}", "merged keys"),
        ("key: 1\nkey: 2", "line 2: the key 'key' is there twice"),
        ("{a: 1, a: 2}", "there twice"),
        ("key:\n\tinner: 1", "line 2: it is indented with a tab"),
        ("key: [1", "list is not closed"),
        ("key: {a: 1", "object is not closed"),
        ("key: [1}", "stands where"),
        ("key: 'a", "quote is not closed"),
        ('key: "a\\', "quote is not closed"),
        ('key: "\\q"', "no escape"),
        ('key: "a" b', "follows a value"),
        ("key: .inf", "not a number that JSON has"),
        ("key: 1e999", "not a number that JSON has"),
        ("1: a", "is not text"),
        ("- a", "is not an object"),
        ("just text", "is not an object"),
        ("", "is not an object"),
        ("  key: 1\nother: 2", "line 2"),
        ("key: 1\nnothing", "no `key: value`"),
        ("key: " + "[" * (MAX_DEPTH + 1), "levels deep"),
        ("\n".join(" " * depth + "k:" for depth in range(MAX_DEPTH + 3)), "levels deep"),
        ("key: [\n" + " a,\n" * MAX_LINES + " b]", f"more than {MAX_LINES} lines"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(yaml: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read_yaml(yaml)


@pytest.mark.parametrize("document", ["", "# Body", "--- \nname: x\n", "\n---\nname: x\n---\n"])
def test_a_document_without_front_matter_is_told_so(document: str) -> None:
    with pytest.raises(Malformed, match="does not begin with front matter"):
        front_matter(document)


def test_front_matter_has_a_bound() -> None:
    with pytest.raises(Malformed, match=str(MAX_SIZE)):
        front_matter("---\nname: " + "x" * MAX_SIZE + "\n---\n")


@given(st.text(alphabet="ab:-#'\"[]{},|>&*! \n\t\\1.", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(Malformed):
        read_yaml(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * MAX_SIZE,
        "a: " + "[" * MAX_SIZE,
        "a: " + "'" * MAX_SIZE,
        'a: "' + "\\" * MAX_SIZE,
        "a: >\n" + " \n" * (MAX_SIZE // 2),
        "a: b\n" + " c\n" * (MAX_SIZE // 3),
        "a: '\n" + " c\n" * (MAX_SIZE // 3),
        "a:" * (MAX_SIZE // 2),
        "- " * (MAX_SIZE // 2),
    ],
    ids=["spaces", "brackets", "quotes", "slashes", "empty lines", "lines", "open quote", "colons", "dashes"],
)
def test_no_text_takes_long(text: str) -> None:
    """A quadratic reader would take minutes."""
    started = time.process_time()
    with contextlib.suppress(Malformed):
        read_yaml(text)
    assert time.process_time() - started < 20


@pytest.mark.parametrize("rest", ["-\r\n" * 5000, "\r\n" * 8000, "--- x\n" * 2600, " " * 16_000, "---x\r\n" * 2000])
def test_a_head_that_never_ends_is_given_up_at_once(rest: str) -> None:
    """Tried in every way its lines could be read, it would stop the whole process."""
    with pytest.raises(Malformed):
        front_matter("---\n" + rest)


WORDS = st.sampled_from(
    ["a", "b c", "x: y", "#c", "a # b", "- d", "it's", '"q"', "1", "2.5", "true", "null", "", "[", "*z", "&y", "|", "?"]
) | st.text(alphabet="ab'\"#: \né", max_size=20)
JSON = st.recursive(
    WORDS | st.integers(-99, 99) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "some key", "a-b"]), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["name", "metadata", "list"]), JSON, min_size=1),
    st.sampled_from([False, None]),
    st.sampled_from([None, "|", ">", "'", '"']),
    st.sampled_from([30, 1000]),
)
def test_what_another_writer_writes_is_read_back(
    values: dict[str, Any], flow: bool | None, style: str | None, width: int
) -> None:
    """Every style of PyYAML; a style forced on what is no text is written with a tag, which is not read."""
    text = yaml.safe_dump(values, default_flow_style=flow, default_style=style, width=width, allow_unicode=True)
    if "!!" not in text:
        assert read_yaml(text) == values


LINES = 250
FLOODS = {
    "a list": "a: [\n" + "".join("  " + "x," * 31 + "\n" for _ in range(LINES)) + "  ]\n",
    "a list that is never closed": "a: [\n" + "".join("  " + "x," * 31 + "\n" for _ in range(LINES)),
    "closing signs on each line": "a: [\n" + "".join("  " + "[]," * 20 + "\n" for _ in range(LINES)),
    "a quoted text": 'a: "\n' + "".join("  " + "x" * 60 + "\n" for _ in range(LINES)),
    "quotes in a quoted text": "a: '\n" + "".join("  " + "'" * 60 + "\n" for _ in range(LINES)),
    "a list of lists": "- " * 8000 + "\n",
}


@pytest.mark.parametrize("text", FLOODS.values(), ids=FLOODS)
def test_no_front_matter_takes_long_to_read(text: str) -> None:
    """A value on many lines is not read anew with each of them: 16 kB took seconds."""
    begun = time.process_time()
    with contextlib.suppress(Malformed):
        front_matter(f"---\n{text}---\n")
    assert time.process_time() - begun < 0.5


def test_a_list_on_many_lines_is_read() -> None:
    lines = "".join(f"  [{number}, {{b: '{number}'}}],\n" for number in range(20))
    found, _ = front_matter(f"---\na: [\n{lines}  ]\n---\n")
    assert found["a"] == [[number, {"b": str(number)}] for number in range(20)]
