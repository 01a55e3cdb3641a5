"""Every regular expression of ours takes linear time, whatever text comes."""

from __future__ import annotations

import ast
import importlib
import re
import re._constants as sre
import re._parser as sre_parser
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ferrule

PACKAGE = Path(ferrule.__file__).parent
METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
COUNTS = (4, 8, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 40, 100, 400, 1600, 6400, 25_600)
"""How often something is repeated: few steps apart at first, where an exponential pattern shows itself."""
LONGEST = 40_000
"""Letters of a text."""
BUDGET = 0.1
"""CPU seconds one text may take; a quadratic pattern takes tens of them for the longest."""


class Use(NamedTuple):
    """A pattern, and how it is applied."""

    place: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]


def uses() -> Iterator[Use]:
    """Find every pattern in the source: `re.compile(…)` and `re.match(…, text)` and its like."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    applied: dict[str, set[str]] = {}
    for name, method in re.findall(rf"\b(\w+)\.({'|'.join(METHODS)})\b", "\n".join(texts.values())):
        applied.setdefault(name, set()).add(method)
    for path, text in texts.items():
        if not re.search(r"^import re$", text, re.MULTILINE):
            continue
        name = ".".join(("ferrule", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        try:
            module = importlib.import_module(name)
        except ImportError:  # it needs a package that is not here
            continue
        tree = ast.parse(text)
        named: dict[int, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                named[id(node.value)] = node.targets[0].id
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
                continue
            called = node.func.attr
            if called != "compile" and called not in METHODS:
                continue
            flags = node.args[1:2] if called == "compile" else []
            flags += [word.value for word in node.keywords if word.arg == "flags"]
            try:
                pattern = re.compile(*(eval(ast.unparse(each), vars(module)) for each in (node.args[0], *flags)))
            except (NameError, TypeError):
                continue  # a pattern that is given by the program, as OpenApiRule's
            methods = (called,)
            if called == "compile":
                used = applied.get(named.get(id(node), ""), ())
                methods = tuple(sorted(used)) or ("match", "fullmatch", "search")
            yield Use(f"{name}:{node.lineno}", pattern, methods)


USES = list(uses())

OWN_TEXT = {"ferrule.server.functions.docstrings"}
"""Modules whose patterns read the program's own text alone, such as its docstrings."""


def sample(parsed: Any) -> str:
    """Write a short text that a parsed pattern takes."""
    written = ""
    for operation, argument in parsed:
        written += _sample(operation, argument)
    return written


def _sample(operation: Any, argument: Any) -> str:
    if operation is sre.LITERAL:
        return chr(argument)
    if operation is sre.NOT_LITERAL:
        return "a" if argument != ord("a") else "b"
    if operation is sre.ANY:
        return "a"
    if operation is sre.IN:
        return _of_class(argument)
    if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, _, body = argument
        return sample(body) * max(1, min(least, 3))
    if operation is sre.SUBPATTERN:
        return sample(argument[3])
    if operation is sre.ATOMIC_GROUP:
        return sample(argument)
    if operation is sre.BRANCH:
        return sample(argument[1][0])
    return ""


CLASSES = {
    sre.CATEGORY_DIGIT: "1",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_NOT_WORD: " ",
}


def _of_class(items: Any) -> str:
    if items[0][0] is sre.NEGATE:
        return next(letter for letter in "a1 \t,;=\0" if re.fullmatch(f"{_unparsed(items)}", letter))
    operation, argument = items[0]
    if operation is sre.RANGE:
        return chr(argument[0])
    if operation is sre.CATEGORY:
        return CLASSES[argument]
    return chr(argument)


def _unparsed(items: Any) -> str:
    """Write a class of characters again."""
    inside = ""
    for operation, argument in items[1:]:
        if operation is sre.RANGE:
            inside += f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
        elif operation is sre.CATEGORY:
            inside += {sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_WORD: r"\w"}.get(argument, "")
        else:
            inside += re.escape(chr(argument))
    return f"[^{inside}]"


def pumps(parsed: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Find what can be repeated in a text the pattern takes: what stands before it, and one of it."""
    for operation, argument in parsed:
        if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            _, most, body = argument
            if most > 8:
                one = sample(body)
                yield before, one
                for other in alternatives(body):
                    yield before, other
                    yield before, one + other
            yield from pumps(body, before)
        elif operation is sre.SUBPATTERN:
            yield from pumps(argument[3], before)
        elif operation is sre.BRANCH:
            for branch in argument[1]:
                yield from pumps(branch, before)
        before += _sample(operation, argument)


def alternatives(body: Any) -> Iterator[str]:
    """Write a text for each branch inside a repetition, and each of its letters."""
    for operation, argument in body:
        if operation is sre.BRANCH:
            for branch in argument[1]:
                yield sample(branch)
        elif operation is sre.SUBPATTERN:
            yield from alternatives(argument[3])
        elif operation is sre.IN:
            for kind, item in argument:
                if kind is sre.LITERAL:
                    yield chr(item)
        elif operation in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            yield from alternatives(argument[2])


ENDS = ("", "\x00", "!", "\n", " x", '"')


def hostile(use: Use, count: int) -> Iterator[str]:
    """Write texts that may take the pattern long."""
    parsed = sre_parser.parse(_text(use.pattern), use.pattern.flags)
    found = dict.fromkeys(pumps(parsed))
    found.update(dict.fromkeys(("", letter) for letter in (" ", "a", "1", ".", "-", "/", '"', ",", "\\", "%", "<!--")))
    for before, one in list(found):
        if one and len(one) * count <= LONGEST:
            for end in ENDS:
                yield before + one * count + end


def _text(pattern: re.Pattern[Any]) -> str:
    text = pattern.pattern
    return text.decode("latin-1") if isinstance(text, bytes) else text


def run(use: Use, method: str, text: Any) -> float:
    """Return the CPU seconds a pattern takes for a text."""
    if isinstance(use.pattern.pattern, bytes):
        text = text.encode("latin-1", errors="replace")
    start = time.process_time()
    if method in ("sub", "subn"):
        getattr(use.pattern, method)(text[:0], text)
    elif method == "finditer":
        list(use.pattern.finditer(text))
    else:
        getattr(use.pattern, method)(text)
    return time.process_time() - start


def worst(use: Use) -> tuple[float, int, str, str]:
    """Try ever longer texts until one takes too long. Return the time, the length, the method and some of the text."""
    slowest = (0.0, 0, "", "")
    for count in COUNTS:
        for method in use.methods:
            for text in hostile(use, count):
                seconds = run(use, method, text)
                if seconds > BUDGET:
                    seconds = min(seconds, run(use, method, text))
                slowest = max(slowest, (seconds, len(text), method, text[:20] + "…" + text[-5:]))
                if seconds > BUDGET:
                    return slowest
    return slowest


def test_the_patterns_are_found():
    assert len(USES) > 30


@pytest.mark.parametrize("use", USES, ids=[use.place for use in USES])
def test_a_pattern_takes_linear_time(use: Use):
    """BUD-18"""
    module = use.place.partition(":")[0]
    if module in OWN_TEXT:
        pytest.skip("it reads the program's own text")
    seconds, length, method, text = worst(use)
    assert seconds <= BUDGET, f"{use.pattern.pattern!r}.{method} takes {seconds:.3f} s for {length} letters: {text!r}"


@pytest.mark.parametrize(
    "pattern", [r"(?:a|aa)*b", r"(?:\s|<!--.*?-->)*<html", r"\s*(.*?)\s*\Z", r"a*a*a*b", r"(?:[ \t]*x?)*y"]
)
def test_slow_patterns_would_be_found(pattern: str):
    assert worst(Use("", re.compile(pattern, re.DOTALL), ("fullmatch",)))[0] > BUDGET
