"""What an experiment hands back: tables and charts as plain values, drawn and written by others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Cell = str | int | float | bool | None
"""Fractions are rounded by whoever measured them; None is a value that does not exist."""

Style = Literal["line", "dashes", "dots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under the names of their columns, which carry the units."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Something to be read as it is, such as a plan."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series of one chart."""

    name: str
    points: list[tuple[float, float]]
    style: Style = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Series over a common axis; ``name`` is that of its files."""

    name: str
    title: str
    x: str
    y: str
    lines: list[Line]
    is_logarithmic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """One bar for each label, on a logarithmic axis."""

    name: str
    title: str
    x: str
    bars: list[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time in which ``who`` had the job of a row; ``is_idle`` when nobody worked on it although it was leased."""

    row: str
    who: str
    start: float
    end: float
    is_idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Who had which job when, in seconds; ``marks`` are moments with a name, ``ticks`` moments of a row."""

    name: str
    title: str
    x: str
    spans: list[Span]
    marks: list[tuple[float, str]]
    ticks: list[tuple[str, float]]


Chart = LineChart | BarChart | Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one experiment. ``setup`` says what was done, ``conclusion`` what the design takes from it."""

    name: str
    title: str
    setup: str
    conclusion: str
    tables: Sequence[Table]
    charts: Sequence[Chart]
    texts: Sequence[Text] = ()


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of all values do not exceed; None without values."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def milliseconds(seconds: float | None) -> float | None:
    """For a cell: two decimals."""
    return None if seconds is None else round(seconds * 1000, 2)
