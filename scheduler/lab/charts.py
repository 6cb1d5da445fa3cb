"""Charts as SVG and PNG files, drawn with matplotlib: the extra ``lab``. The only module that imports it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.errors import ConfigError
from scheduler.lab.findings import BarChart, Chart, Line, LineChart, Timeline
from scheduler.lab.run import LabReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (8.0, 4.0)
PNG_DPI = 110
MARGIN = 0.12
"""The lower part of a figure, which carries the conditions."""
STYLES: dict[str, dict[str, Any]] = {
    "line": {"marker": "o", "markersize": 3},
    "dashes": {"linestyle": "--"},
    "dots": {"linestyle": "", "marker": "."},
}
MARK_ROOM = 24
"""Points between a timeline and its title, for the names of its marks."""
FEW_PLACES = 8
"""With so few places on the axis, each gets a tick."""
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
IDLE_COLOUR = "lightgrey"


def require_charts() -> None:
    """Raises ConfigError when matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError("charts need matplotlib: pip install 'sched-pg[lab]', or give --no-charts for tables only")


def write_charts(report: LabReport, folder: Path) -> None:
    """Write every chart of the report to ``folder``, which exists, as ``<name>.svg`` and ``<name>.png``."""
    import matplotlib

    matplotlib.use("Agg")
    # The same figures give the same file: no random ids, no date of drawing.
    with matplotlib.rc_context(
        {"svg.hashsalt": "sched", "svg.fonttype": "none", "font.size": 8, "axes.grid": True, "grid.alpha": 0.3}
    ):
        for finding in report.findings:
            for chart in finding.charts:
                _write(chart, report.conditions.label, folder)


def _write(chart: Chart, label: str, folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.get_layout_engine().set(rect=(0, MARGIN, 1, 1 - MARGIN))  # type: ignore[union-attr, call-arg]
    axes = figure.add_subplot()
    axes.set_title(chart.title, pad=MARK_ROOM if isinstance(chart, Timeline) else None)
    axes.set_xlabel(chart.x)
    match chart:
        case LineChart():
            _draw_lines(chart, axes)
        case BarChart():
            _draw_bars(chart, axes)
        case Timeline():
            _draw_timeline(chart, axes)
    figure.text(0.01, 0.01, label, fontsize=5, wrap=True, color="dimgrey")
    figure.savefig(folder / f"{chart.name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{chart.name}.png", dpi=PNG_DPI)


def _draw_lines(chart: LineChart, axes: Axes) -> None:
    for line in chart.lines:
        _draw_line(line, axes)
    axes.set_ylabel(chart.y)
    if chart.is_logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    places = sorted({x for line in chart.lines for x, _ in line.points})
    if len(places) <= FEW_PLACES:
        axes.set_xticks(places)
    axes.legend(**BESIDE)


def _draw_line(line: Line, axes: Axes) -> None:
    crowded = {"marker": ""} if line.style == "line" and len(line.points) > 50 else {}
    x, y = zip(*line.points, strict=True) if line.points else ((), ())
    axes.plot(x, y, label=line.name, linewidth=1.2, **STYLES[line.style] | crowded)


def _draw_bars(chart: BarChart, axes: Axes) -> None:
    labels, values = zip(*reversed(chart.bars), strict=True)
    axes.bar_label(axes.barh(labels, values), fmt="%.2f", padding=3)
    axes.set_xscale("log")
    axes.margins(x=0.15)


def _draw_timeline(chart: Timeline, axes: Axes) -> None:
    rows = sorted({span.row for span in chart.spans})
    colours = {who: f"C{place}" for place, who in enumerate(sorted({s.who for s in chart.spans if not s.is_idle}))}
    named: set[str] = set()
    for span in chart.spans:
        axes.barh(
            span.row,
            span.end - span.start,
            left=span.start,
            color=IDLE_COLOUR if span.is_idle else colours[span.who],
            hatch="//" if span.is_idle else None,
            label=None if span.who in named else span.who,
            height=0.5,
        )
        named.add(span.who)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.plot([at for _, at in chart.ticks], [row for row, _ in chart.ticks], "k|", markersize=10, label="beat")
    for at, name in chart.marks:
        axes.axvline(at, color="black", linewidth=0.8)
        axes.annotate(f" {name}", (at, 1.0), xycoords=("data", "axes fraction"), va="bottom")
    axes.legend(**BESIDE)
