"""Metrics: counters, gauges and histograms that cost next to nothing to record, and are read when somebody asks.

Rule 1: what records holds the child of its label values, which is made once. Recording a duration is a search in twenty
edges and two additions.
Rule 2: label values are bounded. A label has at most `max_values` of them, and all metrics together make at most
`max_series` time series; what comes after that is counted under the value `_other_`.
Rule 3: everything happens in one thread, that of the event loop.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from ferrule.errors import SetupError
from ferrule.telemetry.table import TABLE, MetricRow, MetricType

logger = logging.getLogger("ferrule.telemetry")

MAX_VALUES = 1_000
"""How many values one label may have."""
MAX_SERIES = 5_000
"""How many time series all metrics may make together."""
MAX_LABEL = 128
"""How many characters of a label's value are kept."""
OTHER = "_other_"
"""Stands for all label values beyond the limits."""


class Counter:
    """A number that only rises."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        """Count."""
        self.value += amount


class Gauge:
    """A number that rises and falls."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        """Set the number."""
        self.value = value

    def add(self, amount: float = 1.0) -> None:
        """Change the number; it falls by a negative amount."""
        self.value += amount


class Histogram:
    """How many values fell into each bucket, and their sum."""

    __slots__ = ("counts", "edges", "lowest", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.lowest = edges[0] if edges else -math.inf
        """The first edge: most durations are below it, and need no search."""
        self.counts = [0] * (len(edges) + 1)
        """Of each bucket alone; the last is for values above all edges."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value; one that equals an edge belongs below it."""
        if value <= self.lowest:
            self.counts[0] += 1
        else:
            self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


Child = TypeVar("Child", Counter, Gauge, Histogram)


Series = tuple[str, tuple[str, ...]]
"""One time series: the name of its metric and its label values."""


class SeriesBudget:
    """How many time series may still be made."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Metric(Generic[Child]):
    """One metric with its children: one for each set of label values."""

    __slots__ = ("_budget", "_make", "_max_values", "_overflow", "_values", "children", "row")

    def __init__(self, row: MetricRow, make: Callable[[], Child], budget: SeriesBudget, max_values: int) -> None:
        self.row = row
        self.children: dict[tuple[str, ...], Child] = {}
        self._make: Callable[[], Child] = make
        self._budget = budget
        self._max_values = max_values
        self._values: list[set[str]] = [set() for _ in row.labels]
        """The values each label has had."""
        self._overflow = (OTHER,) * len(row.labels)
        """The label values of all that is beyond the limits; there is always room for this child."""

    def labels(self, *values: str) -> Child:
        """Return the child of these label values, in the order of the table; it may be kept."""
        child = self.children.get(values)
        if child is None:
            child = self._add(values)
        return child

    def remove(self, *values: str) -> None:
        """Forget a child, if there is one: of something that is gone and will not come back."""
        if self.children.pop(values, None) is None:
            return
        if values != self._overflow:
            self._budget.left += self.row.series
        for position, value in enumerate(values):
            if not any(key[position] == value for key in self.children):
                self._values[position].discard(value)

    def _add(self, values: tuple[str, ...]) -> Child:
        if len(values) != len(self.row.labels):
            wanted = ", ".join(self.row.labels) or "none"
            raise SetupError(f"metric {self.row.name} has the labels {wanted}, and was given {len(values)} values")
        bounded = []
        for position, value in enumerate(values):
            bounded.append(self._bounded(position, value))
        key = tuple(bounded)
        if key not in self.children and self._budget.left < self.row.series:
            key = self._overflow
        child = self.children.get(key)
        if child is None:
            child = self._make()
            self.children[key] = child
            if key != self._overflow:
                self._budget.left -= self.row.series
        return child

    def _bounded(self, position: int, value: str) -> str:
        """Return a label's value, or that of all others when it has too many."""
        value = str(value)[:MAX_LABEL]
        values = self._values[position]
        if value in values or value in ("", OTHER):
            return value
        if len(values) >= self._max_values:
            return OTHER
        values.add(value)
        return value


class Home(Protocol):
    """The event loop in whose thread metrics are recorded."""

    def is_running(self) -> bool:
        """Return whether it turns."""

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object:
        """Call a function in its thread."""


class Metrics:
    """All metrics of a server or a client."""

    def __init__(
        self, table: Iterable[MetricRow] = TABLE, *, max_series: int = MAX_SERIES, max_values: int = MAX_VALUES
    ) -> None:
        self._rows: dict[str, MetricRow] = {}
        self._families: set[str] = set()
        self._max_values = max_values
        self._budget = SeriesBudget(max_series)
        self._counters: dict[str, Metric[Counter]] = {}
        self._gauges: dict[str, Metric[Gauge]] = {}
        self._histograms: dict[str, Metric[Histogram]] = {}
        self.home: Home | None = None
        """Where they are recorded; None where nothing runs yet."""
        self._readers: list[Callable[[], None]] = []
        self._sources: dict[Series, list[Callable[[], float]]] = {}
        """What a counter or gauge is the sum of, where it is read from others."""
        self._ended: dict[Series, float] = {}
        """What sources have counted that are gone: a counter never falls."""
        for row in table:
            self.add(row)

    def add(self, row: MetricRow) -> None:
        """Add a metric to the table."""
        if row.family in self._families:
            raise SetupError(f"metric {row.name!r}: the table has a metric of this name already")
        self._families.add(row.family)
        self._rows[row.name] = row
        # Room for the child of all that is beyond the limits, so that there is always one.
        self._budget.left -= row.series

    @property
    def rows(self) -> list[MetricRow]:
        """The rows of the table, in order."""
        return list(self._rows.values())

    def counter(self, name: str) -> Metric[Counter]:
        """Return a counter of the table."""
        row = self._row(name, "counter")
        if name not in self._counters:
            self._counters[name] = Metric(row, Counter, self._budget, self._max_values)
        return self._counters[name]

    def gauge(self, name: str) -> Metric[Gauge]:
        """Return a gauge of the table."""
        row = self._row(name, "gauge")
        if name not in self._gauges:
            self._gauges[name] = Metric(row, Gauge, self._budget, self._max_values)
        return self._gauges[name]

    def histogram(self, name: str) -> Metric[Histogram]:
        """Return a histogram of the table."""
        row = self._row(name, "histogram")
        if name not in self._histograms:
            self._histograms[name] = Metric(row, lambda: Histogram(row.edges), self._budget, self._max_values)
        return self._histograms[name]

    def _row(self, name: str, wanted: MetricType) -> MetricRow:
        row = self._rows.get(name)
        if row is None:
            raise SetupError(f"there is no metric {name!r}: add a row to the table first")
        if row.type != wanted:
            raise SetupError(f"metric {name!r} is a {row.type}, not a {wanted}")
        return row

    def before_reading(self, reader: Callable[[], None]) -> Callable[[], None]:
        """Call a function before the metrics are read: it sets gauges to what is the case then.

        Return a function that ends this.
        """
        self._readers.append(reader)

        def end() -> None:
            if reader in self._readers:
                self._readers.remove(reader)

        return end

    def watch(self, name: str, *labels: str, source: Callable[[], float]) -> Callable[[], None]:
        """Let a counter or gauge be the sum of what its sources return when it is read.

        Return a function that ends this; a counter keeps what the source has counted until then.
        """
        series = (name, labels)
        self._number(series)
        self._sources.setdefault(series, []).append(source)

        def end() -> None:
            sources = self._sources[series]
            if source in sources:
                sources.remove(source)
                if isinstance(self._number(series), Counter):
                    self._ended[series] = self._ended.get(series, 0.0) + source()

        return end

    def _number(self, series: Series) -> Counter | Gauge:
        name, labels = series
        if name in self._rows and self._rows[name].type == "counter":
            return self.counter(name).labels(*labels)
        return self.gauge(name).labels(*labels)

    def _read_sources(self) -> None:
        for series, sources in self._sources.items():
            total = self._ended.get(series, 0.0)
            for source in sources:
                total += source()
            self._number(series).value = total

    def read(self) -> list[Metric[Counter] | Metric[Gauge] | Metric[Histogram]]:
        """Return the metrics that have children, in the order of the table."""
        for reader in (self._read_sources, *self._readers):
            try:
                reader()
            except Exception:
                logger.exception("a reader of metrics failed, which was ignored")
        found: list[Metric[Counter] | Metric[Gauge] | Metric[Histogram]] = []
        for name in self._rows:
            metric = self._counters.get(name) or self._gauges.get(name) or self._histograms.get(name)
            if metric is not None and metric.children:
                found.append(metric)
        return found
