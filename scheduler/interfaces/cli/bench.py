"""``sched bench``: measurements on a database of yours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scheduler.interfaces.cli.options import Dsn, Json, choice
from scheduler.interfaces.cli.output import print_json, print_text, say
from scheduler.interfaces.cli.session import opened

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure what the design rests on."""


@app.command()
def lab(
    context: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default=False, help="Write README.md and the charts there, too."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="NAMES", show_default="all", help="Some of claim,held,plan,killed,backoff; comma between."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, in seconds.")] = False,
    no_charts: Annotated[bool, typer.Option("--no-charts", help="Tables only; needs no matplotlib.")] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Repeat the experiments that the design rests on. Takes about seven minutes and a quiet machine.

    It works in a schema of its own, sched_lab, which it drops at its end; the product's schema is neither needed nor
    touched. Charts need the extra "lab" (matplotlib).

    \b
      sched bench lab --out lab
      sched bench lab --only claim,plan --quick
      sched bench lab --dsn postgresql://db.internal/test --json
    """
    from scheduler.lab.charts import require_charts, write_charts
    from scheduler.lab.report import document, require_folder, tables, write_page
    from scheduler.lab.run import EXPERIMENTS, run_lab
    from scheduler.lab.settings import LabSettings

    names = [choice(name.strip(), "--only", list(EXPERIMENTS)) for name in (only or ",".join(EXPERIMENTS)).split(",")]
    draws = out is not None and not no_charts
    if draws:
        require_charts()
    if out is not None:
        require_folder(out)
    settings = LabSettings.quick() if quick else LabSettings()
    with opened(context, dsn, needs_schema=False, log_level="error") as database:
        report = run_lab(database, settings, names, say)
    if out is not None:
        say(f"written: {write_page(report, out, with_charts=draws)}")
        if draws:
            write_charts(report, out)
    if as_json:
        print_json(document(report))
    else:
        print_text(tables(report))
