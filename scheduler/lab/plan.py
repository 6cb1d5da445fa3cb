"""Experiment: what a claim reads, with and without finished jobs beneath, and with other indexes than the product's.

The statement is taken from the text of ``sched.claim`` in the database, so that it is the product's whatever that
becomes; it is explained and rolled back. The server chooses its plan freely; beside it stands the function itself,
which fixes its plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from scheduler.errors import StorageError
from scheduler.lab.findings import BarChart, Finding, Table, Text
from scheduler.lab.schema import LabDatabase
from scheduler.lab.settings import LabSettings
from scheduler.lab.statements import run, statements, value
from scheduler.storage.database import Connection, mapped_errors

ARGUMENTS = {
    "p_queues": "array['lab']",
    "p_worker": "'00000000-0000-4000-8000-000000000000'::uuid",
    "p_limit": "10",
    "p_lease": "interval '15 seconds'",
    "v_token": "'00000000000000000000'",
}
"""What stands for the arguments and variables of ``sched.claim`` when its statement is explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """How jobs are found in one layout of the table. Times in milliseconds, medians of several runs."""

    layout: str
    scan: str
    index: str | None
    read: int
    removed: int
    buffers: int
    planning: float
    execution: float
    function: float
    index_bytes: int | None
    text: str


def measure_plans(database: LabDatabase, settings: LabSettings, say: Callable[[str], None]) -> Finding:
    """The claim of ten jobs in every layout of the table."""
    measured = []
    with database.connection() as connection:
        for layout in _layouts(connection, settings):
            say(f"plan: {layout}")
            run(connection, "plan_vacuum")
            measured.append(_measure(connection, layout, settings.plan_repeats))
    return _finding(measured, settings)


def _layouts(connection: Connection, settings: LabSettings) -> Iterator[str]:
    """Bring the table into one layout after the other, and back at the end."""
    product_index = value(connection, "plan_claim_index")
    run(connection, "jobs_clear")
    run(connection, "plan_fill_pending", jobs=settings.plan_pending)
    yield "pending alone, partial index"
    run(connection, "plan_fill_finished", jobs=settings.plan_finished)
    beneath = f"{settings.plan_finished:,} finished"
    yield f"{beneath}, partial index (sched)"
    run(connection, "plan_drop_index")
    run(connection, "plan_index_same_columns")
    yield f"{beneath}, full index, same columns"
    run(connection, "plan_drop_index")
    run(connection, "plan_index_status_first")
    yield f"{beneath}, full index, status first"
    run(connection, "plan_drop_index")
    yield f"{beneath}, no index"
    run(connection, "jobs_clear")
    with mapped_errors():
        connection.execute(product_index)


def _measure(connection: Connection, layout: str, repeats: int) -> Planned:
    statement = claim_statement(connection)
    plans = [_explained(connection, f"explain (analyze, buffers, format json) {statement}") for _ in range(repeats)]
    calls = [_explained(connection, statements()["plan_call_claim"]) for _ in range(repeats)]
    scan = scan_below_lock(plans[-1]["Plan"])
    return Planned(
        layout=layout,
        scan=scan["Node Type"],
        index=scan.get("Index Name"),
        read=int(scan["Actual Rows"] * scan["Actual Loops"]),
        removed=int(scan.get("Rows Removed by Filter", 0) * scan["Actual Loops"]),
        buffers=scan["Shared Hit Blocks"] + scan["Shared Read Blocks"],
        planning=median(plan["Planning Time"] for plan in plans),
        execution=median(plan["Execution Time"] for plan in plans),
        function=median(call["Execution Time"] for call in calls),
        index_bytes=value(connection, "plan_index_size"),
        text=_plan_text(connection, statement),
    )


def claim_statement(connection: Connection) -> str:
    """The statement inside ``sched.claim``, with values in place of its arguments."""
    source: str = value(connection, "plan_claim_source")
    found = re.search(r"\breturn query\b(.*);\s*end\b", source, re.DOTALL)
    if found is None:
        raise StorageError("the text of claim() has no statement after return query: the lab cannot explain it")
    statement = found[1]
    for name, literal in ARGUMENTS.items():
        statement = re.sub(rf"\b{name}\b", literal, statement)
    return statement.strip()


def scan_below_lock(plan: dict[str, Any], *, is_below: bool = False) -> dict[str, Any]:
    """The node that reads the jobs which are then locked. Raises StorageError if the plan has none."""
    for node in _nodes(plan, is_below=is_below):
        return node
    raise StorageError("the plan of a claim locks no rows: the lab cannot read it")


def _nodes(plan: dict[str, Any], *, is_below: bool) -> Iterator[dict[str, Any]]:
    if is_below and plan.get("Relation Name") == "jobs":
        yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child, is_below=is_below or plan["Node Type"] == "LockRows")


def _explained(connection: Connection, statement: str) -> dict[str, Any]:
    with mapped_errors(), connection.transaction(force_rollback=True):
        (row,) = connection.execute(statement).fetchall()
    document: list[dict[str, Any]] = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return document[0]


def _plan_text(connection: Connection, statement: str) -> str:
    with mapped_errors(), connection.transaction(force_rollback=True):
        lines = connection.execute(f"explain (analyze, buffers) {statement}").fetchall()
    return "\n".join(line for (line,) in lines)


def _finding(measured: list[Planned], settings: LabSettings) -> Finding:
    return Finding(
        name="plan",
        title="What a claim reads",
        setup=f"{settings.plan_pending} pending jobs, ten of which are claimed: alone, and over "
        f"{settings.plan_finished:,} finished ones with different indexes in place of the product's. The statement is "
        "that of `sched.claim`, explained with `explain (analyze, buffers)` and rolled back; times are medians of "
        f"{settings.plan_repeats} warm runs. Rows and buffers are those of the node that finds the jobs.",
        conclusion="With the partial index a claim reads what it takes, whatever lies beneath, and the index is as "
        "small as the backlog. A full index is as large as the history and must be written for every finished job; "
        "with the same columns it walks through finished jobs to reach the pending ones, with the status first it "
        "finds them as fast. Without an index a claim reads the whole table. The design keeps only pending jobs in "
        "the claim index, and `sched.claim` switches the other plans off, so that no statistics can bring them back.",
        tables=[_table(measured)],
        charts=[
            BarChart(
                name="plan-time",
                title="Time of a claim of ten jobs",
                x="ms",
                bars=[(each.layout, each.execution) for each in measured],
            )
        ],
        texts=[Text(title=each.layout, text=each.text) for each in measured],
    )


def _table(measured: list[Planned]) -> Table:
    columns = (
        "layout", "scan", "index", "rows read", "rows removed by filter", "buffers", "planning, ms", "execution, ms",
        "sched.claim(), ms", "claim index, kB",
    )  # fmt: skip
    return Table(
        title="Claim of ten jobs",
        columns=columns,
        rows=[
            (
                each.layout,
                each.scan,
                each.index,
                each.read,
                each.removed,
                each.buffers,
                round(each.planning, 2),
                round(each.execution, 2),
                round(each.function, 2),
                None if each.index_bytes is None else each.index_bytes // 1024,
            )
            for each in measured
        ],
    )
