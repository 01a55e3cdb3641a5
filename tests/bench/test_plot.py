"""Curves are drawn where their figures say, and the page that holds them needs nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from bench.page import page
from bench.plot import Chart, Scale, count_word, figure_word, size_word, spread, svg, ticks, x_scale, y_scale

LINES = {"ferrule": [(1, 40.0), (64, 5.0)], "<other>": [(1, 80.0), (64, 20.0)]}
CHART = Chart("calls", "Calls & answers", "calls in flight", "CPU µs", lines=LINES)


def drawn(chart: Chart) -> ElementTree.Element:
    """Return a chart as it is parsed by whoever shows it."""
    return ElementTree.fromstring(svg(chart, {name: number for number, name in enumerate(chart.lines)}))


def test_a_logarithmic_axis_has_its_middle_at_the_geometric_mean() -> None:
    scale = Scale(1, 100, 0, 200)
    assert [scale.at(value) for value in (1, 10, 100)] == [0, pytest.approx(100), pytest.approx(200)]
    assert scale.at(0) == 0


def test_zero_has_a_place_of_its_own_before_the_first_number() -> None:
    scale = x_scale([0, 10, 100])
    assert scale.at(0) == scale.start
    assert scale.start < scale.at(10) < scale.at(100) == scale.end


def test_the_axis_of_figures_holds_all_of_them_and_a_decade_at_least() -> None:
    scale = y_scale([4.7, 5.3])
    assert scale.low <= 4.7
    assert scale.high >= 5.3
    assert scale.high / scale.low >= 10
    assert {5.0, 10.0} <= set(ticks(scale))
    assert ticks(Scale(1, 1e6, 0, 1)) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]


def test_a_chart_of_one_point_can_be_drawn() -> None:
    chart = Chart("one", "One", "x", "y", lines={"ferrule": [(10, 3.0)]})
    assert drawn(chart).tag == "svg"


def test_every_point_is_drawn_inside_and_less_is_lower() -> None:
    paths = [path.get("d") for path in drawn(CHART).iter("path") if path.get("class") == "curve"]
    (ours, theirs) = [[tuple(map(float, at.split())) for at in path[1:].split("L")] for path in paths]
    assert [x for x, _ in ours] == [x for x, _ in theirs]
    assert all(below > above for (_, below), (_, above) in zip(ours, theirs, strict=True))
    assert all(0 < x < 560 and 0 < y < 330 for x, y in [*ours, *theirs])


def test_axes_and_lines_are_named_and_points_tell_their_figure() -> None:
    texts = ["".join(text.itertext()) for text in drawn(CHART).iter("text")]
    assert {"calls in flight", "CPU µs", "ferrule", "<other>", "1", "64"} <= set(texts)
    told = [title.text for title in drawn(CHART).iter("title")]
    assert "ferrule: 5.00 CPU µs at 64" in told
    assert len(told) == 4


def test_labels_that_would_overlap_are_moved_apart_within_their_ends() -> None:
    assert spread([10, 11, 12], 15, 0, 100) == [10, 25, 40]
    assert spread([98, 99], 15, 0, 100) == [85, 100]
    assert spread([50, 10], 15, 0, 100) == [50, 10]


def test_numbers_are_short_in_words() -> None:
    assert [count_word(value) for value in (0.5, 20, 1000, 1024, 1_500_000)] == ["0.5", "20", "1k", "1,024", "1.5M"]
    assert [size_word(value) for value in (100, 10_000, 10_000_000)] == ["100 B", "10 KB", "10 MB"]
    assert [figure_word(value) for value in (4.712, 47.12, 471.2, 4712.0)] == ["4.71", "47.1", "471", "4,712"]


def test_a_page_stands_alone_and_suits_both_themes() -> None:
    made = page("Growth", ["of <this>"], {"Calls": [CHART]}, ["ts: it was away"])
    assert "prefers-color-scheme: dark" in made
    assert re.findall(r"<script|https?://|<link|@import|url\(", made) == []
    assert "of &lt;this&gt;" in made
    assert "Calls &amp; answers" in made
    assert "ts: it was away" in made
    # The figures are there for who cannot see a curve.
    assert "<td>40.0</td><td>5.00</td>" in made
    for number in range(len(LINES)):
        assert f".s{number} {{ --line: var(--c{number}) }}" in made
