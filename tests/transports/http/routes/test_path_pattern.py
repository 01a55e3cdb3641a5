"""Paths with variables."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.transports.http.routes.path_pattern import VARIABLE, PathPattern

LONG = 8192
"""The longest request line there is."""

PIECES = st.sampled_from(["a", "-", ".", "", "{x}", "{y}", "{z}"])
SEGMENTS = st.lists(PIECES, min_size=1, max_size=5).map("".join)
RESTS = st.sampled_from(["", "{rest:path}", "a{rest:path}", "{rest:path}.a"])


def as_expression(path: str) -> re.Pattern[str]:
    """Write a pattern as the regular expression it stands for."""
    parts = VARIABLE.split(path)
    texts = [re.escape(text) for text in parts[::3]]
    groups = [f"(?P<{n}>{'.+' if many else '[^/]+'})" for n, many in zip(parts[1::3], parts[2::3], strict=True)]
    return re.compile("".join(a + b for a, b in zip(texts, [*groups, ""], strict=True)), re.DOTALL)


@given(st.lists(SEGMENTS, max_size=3), RESTS, st.lists(SEGMENTS, max_size=2), st.text("a-./x", max_size=14))
@example(["{x}.{y}"], "", [], "/a..b.c")
@example(["{x}{y}{z}"], "", [], "/abcd")
@example(["{x}a"], "{rest:path}", ["-"], "/aa/b/c/-/-")
def test_a_path_is_matched_as_its_regular_expression_would(
    before: list[str], rest: str, after: list[str], path: str
) -> None:
    pattern = "/" + "/".join([*before, *([rest] if rest else []), *after])
    names = [variable[1] for variable in VARIABLE.finditer(pattern)]
    if len(set(names)) < len(names):
        return
    found = as_expression(pattern).fullmatch(path)
    assert PathPattern(pattern).match(path) == (None if found is None else found.groupdict())


@pytest.mark.parametrize(
    ("pattern", "path", "values"),
    [
        ("/health", "/health", {}),
        ("/health", "/health/", None),
        ("/{name}", "/a", {"name": "a"}),
        ("/{name}", "/", None),
        ("/{name}", "/a/b", None),
        ("/{name}.{type}", "/a.tar.gz", {"name": "a.tar", "type": "gz"}),
        ("/{name}.{type}", "/.gz", None),
        ("/{name}/part/{rest:path}", "/a/part/b/c", {"name": "a", "rest": "b/c"}),
        ("/{name}/part/{rest:path}", "/a/part/", None),
        ("/{rest:path}/edit", "/a/edit/edit", {"rest": "a/edit"}),
        ("/{rest:path}/edit", "/edit", None),
        ("/x{rest:path}y", "/xy", None),
        ("/x{rest:path}y", "/xa/by", {"rest": "a/b"}),
    ],
)
def test_variables_take_what_stands_in_their_place(pattern: str, path: str, values: dict[str, str] | None) -> None:
    assert PathPattern(pattern).match(path) == values


@pytest.mark.parametrize("pattern", ["/{a:path}/{b:path}", "/{a:path}{b}", "/{a}-{b:path}", "/{a:path}-{b:path}"])
def test_a_variable_of_many_segments_that_cannot_be_told_from_others_is_refused(pattern: str) -> None:
    with pytest.raises(SetupError, match=r"only one {name:path}"):
        PathPattern(pattern)


@pytest.mark.parametrize("pattern", ["/{", "/}", "/{}", "/{a", "/a}", "/{1}", "/{a b}", "/{{a}}", "/{a:str}"])
def test_a_brace_that_encloses_no_name_is_refused(pattern: str) -> None:
    with pytest.raises(SetupError, match="a brace that encloses no name"):
        PathPattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/{a}-{b}-{c}-{d}!", "/" + "-" * LONG),
        ("/{a}{b}{c}{d}!", "/" + "a" * LONG),
        ("/{a}/{b}/{c}/{d}!", "/" * LONG),
        ("/{a:path}/{b}/{c}/{d}!", "/" * LONG),
        ("/{a:path}/{b}-{c}/d", "/" + "-/" * (LONG // 2)),
        ("/{a}--{b}--{c}--{d}!", "/" + "-" * LONG + "x"),
    ],
)
def test_the_longest_path_that_does_not_match_is_found_out_at_once(pattern: str, path: str) -> None:
    compiled = PathPattern(pattern)
    spent = []
    for _ in range(5):
        began = time.process_time()
        assert compiled.match(path) is None
        spent.append(time.process_time() - began)
    assert min(spent) < 0.005
