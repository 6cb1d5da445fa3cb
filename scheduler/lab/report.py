"""A report as Markdown for people and as one document for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scheduler.errors import ConfigError
from scheduler.lab.findings import Cell, Finding, Table
from scheduler.lab.run import LabReport

PAGE = "README.md"
HEAD = """\
# The lab

Measurements that the design rests on, by `sched bench lab`, which repeats them on any database in a schema of its own.
This page is written by it (`make lab`): change the lab, not the page. Compare figures within a table; they are of one
machine. The code is in `scheduler/lab/`, one module for each experiment.
"""


def document(report: LabReport) -> dict[str, Any]:
    """Conditions, and each finding with its tables as lists of objects, and the points of its charts."""
    return {
        "conditions": asdict(report.conditions),
        "experiments": [
            {
                "name": finding.name,
                "title": finding.title,
                "setup": finding.setup,
                "conclusion": finding.conclusion,
                "tables": [_objects(table) for table in finding.tables],
                "charts": [asdict(chart) for chart in finding.charts],
                "texts": [asdict(text) for text in finding.texts],
            }
            for finding in report.findings
        ],
    }


def tables(report: LabReport) -> str:
    """The tables alone, as Markdown under their titles."""
    label = report.conditions.label
    return "\n".join(line for finding in report.findings for table in finding.tables for line in _table(table, label))


def require_folder(folder: Path) -> None:
    """Make ``folder`` if need be, so that a lab of minutes has a place for its report. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out: {folder} cannot be made: {(error.strerror or str(error)).lower()}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"--out: {folder} is not writable: give another directory")


def write_page(report: LabReport, folder: Path, *, with_charts: bool) -> Path:
    """Write the whole report to ``folder``; returns the page's path."""
    page = folder / PAGE
    page.write_text("\n".join(_page(report, with_charts)), encoding="utf-8")
    return page


def _page(report: LabReport, with_charts: bool) -> Iterator[str]:
    yield HEAD
    yield f"Measured with {report.conditions.label}.\n"
    for finding in report.findings:
        yield from _section(finding, report.conditions.label, with_charts)


def _section(finding: Finding, label: str, with_charts: bool) -> Iterator[str]:
    yield f"## {finding.title}\n"
    yield f"{finding.setup}\n"
    for table in finding.tables:
        yield from _table(table, label)
    for chart in finding.charts if with_charts else ():
        yield f"![{chart.title}]({chart.name}.svg)\n"
    for text in finding.texts:
        yield f"<details><summary>{text.title}</summary>\n\n```text\n{text.text}\n```\n\n</details>\n"
    yield f"**What the design takes from it.** {finding.conclusion}\n"


def _table(table: Table, label: str) -> Iterator[str]:
    yield f"### {table.title}\n"
    yield _row(table.columns)
    yield "|" + "---|" * len(table.columns)
    yield from (_row([_cell(value) for value in row]) for row in table.rows)
    yield f"\n<sub>{label}</sub>\n"


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def _objects(table: Table) -> dict[str, Any]:
    return {"title": table.title, "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]}
