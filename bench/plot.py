"""Curves as SVG: lines over two logarithmic axes, named at their ends, in colours the page gives them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 560.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 128.0, 14.0, 48.0
LABEL_HEIGHT = 15.0
LONGEST_NUMBER = 4
WORDS_FOR_THOUSANDS = ((1e6, "M"), (1e3, "k"))

Points = list[tuple[float, float]]


def count_word(value: float) -> str:
    """Write a number for an axis: 0.5, 20, 1k, 1,024, 1.5M."""
    for factor, word in WORDS_FOR_THOUSANDS:
        if value >= factor:
            short = f"{value / factor:g}"
            return f"{short}{word}" if len(short) <= LONGEST_NUMBER else f"{value:,.0f}"
    return f"{value:g}"


def size_word(value: float) -> str:
    """Write a size for an axis: 100 B, 10 KB, 1 MB."""
    for factor, word in ((1e6, "MB"), (1e3, "KB")):
        if value >= factor:
            return f"{value / factor:g} {word}"
    return f"{value:g} B"


def figure_word(value: float) -> str:
    """Write a figure for a table: three digits that count."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Chart:
    """What is drawn: lines by name, what their axes mean, and in which direction good lies."""

    key: str
    title: str
    x_title: str
    y_title: str
    more_is_better: bool = False
    x_word: Callable[[float], str] = count_word
    lines: dict[str, Points] = field(default_factory=dict)

    def points(self) -> Points:
        """Return every point of every line."""
        return [point for line in self.lines.values() for point in line]

    def places(self) -> list[float]:
        """Return all x values, in order."""
        return sorted({x for x, _ in self.points()})


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis: from which value to which, drawn from which place to which."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return where a value is drawn; what is zero or less stands at the beginning."""
        if value <= self.low:
            return self.start
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def x_scale(places: list[float]) -> Scale:
    """Return the axis of what grows; zero has a place of its own, a step before the first number."""
    positive = [each for each in places if each > 0]
    low, high = positive[0], positive[-1]
    if low == high:
        low, high = low / 2, high * 2
    if places[0] <= 0:
        low /= 10
    return Scale(low, high, LEFT, WIDTH - RIGHT)


def y_scale(values: list[float]) -> Scale:
    """Return the axis of what is measured, from one round number to another, at least a decade apart."""
    low, high = _round_down(min(values)), _round_up(max(values))
    while high / low < 10:
        low, high = _round_down(low * 0.99), _round_up(high * 1.01)
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def _round_down(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return max(step * decade for step in (1, 2, 5) if step * decade <= value * 1.0001)


def _round_up(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return min(step * decade for step in (1, 2, 5, 10) if step * decade >= value * 0.9999)


def ticks(scale: Scale) -> list[float]:
    """Return the numbers an axis shows: whole decades, and 2 and 5 between them where there is room."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    steps = (1, 2, 5) if math.log10(scale.high / scale.low) <= 2.4 else (1,)
    every = [step * 10.0**decade for decade in range(first, last + 1) for step in steps]
    return [each for each in every if scale.low * 0.999 <= each <= scale.high * 1.001]


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart that would overlap, as little as their order allows, between two ends."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    placed = [0.0] * len(wanted)
    lowest = low
    for index in order:
        placed[index] = max(wanted[index], lowest)
        lowest = placed[index] + gap
    highest = high
    for index in reversed(order):
        placed[index] = min(placed[index], highest)
        highest = placed[index] - gap
    return placed


MARKS = (
    '<circle cx="{x}" cy="{y}" r="3.6"/>',
    '<path d="M{x} {y}m-3.4-3.4h6.8v6.8h-6.8z"/>',
    '<path d="M{x} {y}m0-4.6l4.2 7.6h-8.4z"/>',
    '<path d="M{x} {y}m0-4.8l4.8 4.8l-4.8 4.8l-4.8-4.8z"/>',
    '<path d="M{x} {y}m0 4.6l4.2-7.6h-8.4z"/>',
)
"""Each line has a shape too, for who sees no colours."""


def mark(number: int, x: float, y: float) -> str:
    """Return the point of a line."""
    return MARKS[number % len(MARKS)].format(x=f"{x:.1f}", y=f"{y:.1f}")


def svg(chart: Chart, numbers: dict[str, int]) -> str:
    """Draw a chart; each line has the colour and the shape of its number."""
    across, up = x_scale(chart.places()), y_scale([y for _, y in chart.points()])
    parts = [
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(_described(chart), quote=True)}">',
        *_axes(chart, across, up),
    ]
    names = list(chart.lines)
    ends = [up.at(line[-1][1]) for line in chart.lines.values()]
    labels = dict(zip(names, spread(ends, LABEL_HEIGHT, TOP, HEIGHT - BOTTOM), strict=True))
    for name, line in chart.lines.items():
        parts += _line(chart, name, line, numbers[name], (across, up), labels[name])
    return "\n".join([*parts, "</svg>"])


def _described(chart: Chart) -> str:
    return f"{chart.title}: {chart.y_title} by {chart.x_title}, for {', '.join(chart.lines)}"


def _axes(chart: Chart, across: Scale, up: Scale) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in ticks(up):
        y = f"{up.at(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT:g}" y1="{y}" x2="{right:g}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8:g}" y="{y}" dy=".32em" text-anchor="end">{count_word(value)}</text>'
        )
    shown = -math.inf
    for value in chart.places():
        x = across.at(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{bottom:g}" x2="{x:.1f}" y2="{bottom + 4:g}"/>')
        if x - shown >= 34:
            word = chart.x_word(value) if value else "0"
            parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18:g}" text-anchor="middle">{word}</text>')
            shown = x
    middle = (LEFT + right) / 2
    parts.append(f'<line class="axis" x1="{LEFT:g}" y1="{bottom:g}" x2="{right:g}" y2="{bottom:g}"/>')
    parts.append(
        f'<text class="name" x="{middle:g}" y="{HEIGHT - 8:g}" text-anchor="middle">{escape(chart.x_title)}</text>'
    )
    height = (TOP + bottom) / 2
    turned = f'transform="rotate(-90 14 {height:g})"'
    parts.append(
        f'<text class="name" x="14" y="{height:g}" text-anchor="middle" {turned}>{escape(chart.y_title)}</text>'
    )
    return parts


def _line(chart: Chart, name: str, line: Points, number: int, scales: tuple[Scale, Scale], label: float) -> list[str]:
    across, up = scales
    drawn = [(across.at(x), up.at(y)) for x, y in line]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in drawn)
    parts = [f'<g class="line s{number}">', f'<path class="curve" d="{path}"/>']
    for (x, y), (value, figure) in zip(drawn, line, strict=True):
        told = f"{name}: {figure_word(figure)} {chart.y_title} at {chart.x_word(value)}"
        parts.append(f"<g><title>{escape(told)}</title>{mark(number, x, y)}</g>")
    last_x, last_y = drawn[-1]
    right = WIDTH - RIGHT
    parts.append(f'<path class="lead" d="M{last_x + 5:.1f} {last_y:.1f}L{right + 12:g} {label:.1f}"/>')
    parts.append(f'<text class="label" x="{right + 15:g}" y="{label:.1f}" dy=".34em">{escape(name)}</text>')
    return [*parts, "</g>"]
