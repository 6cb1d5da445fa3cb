"""``sched doctor``: what is not as it should be, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.interfaces.cli.options import Dsn, Json
from scheduler.interfaces.cli.output import counted, print_json, print_line, printable, say
from scheduler.interfaces.cli.session import opened, settings_of

if TYPE_CHECKING:
    from scheduler.services.doctor import Check
    from scheduler.storage.doctor import Repaired

app = typer.Typer(rich_markup_mode=None)

FINDINGS = 1


@app.command()
def doctor(
    context: typer.Context,
    repair: Annotated[
        bool,
        typer.Option("--repair-clock", help="First take back what was decided while the database's clock was ahead."),
    ] = False,
    dsn: Dsn = None,
    as_json: Json = False,
) -> None:
    """Check everything that should hold. Each finding comes with advice; exit code 1 if there are any.

    It looks at the server, the clocks, planning and firing, open transactions and the invariants of the tables, and
    changes nothing. With --repair-clock, dates that were decided in what is now the future and have no job are
    planned again.

    \b
      sched doctor
      sched doctor --json
      sched doctor --repair-clock
    """
    from scheduler.services.doctor import examine, repair_clock
    from scheduler.storage.migrations import require_schema

    repaired = None
    with opened(context, dsn, needs_schema=False) as database, database.connection() as connection:
        if repair:
            require_schema(connection)
            repaired = repair_clock(connection, settings_of(context, dsn).actor)
        checks = examine(connection)
    findings = [check for check in checks if not check.is_ok]
    if as_json:
        print_json(_document(checks, len(findings), repaired))
    else:
        if repaired is not None:
            print_line(f"{counted(repaired.dates, 'date')} planned again, {counted(repaired.jobs, 'job')} set right")
        _print_checks(checks)
        say(counted(len(findings), "finding") if findings else "everything is in order")
    if findings:
        raise typer.Exit(FINDINGS)


def _document(checks: Sequence[Check], findings: int, repaired: Repaired | None) -> dict[str, Any]:
    listed = [
        {
            "check": check.name,
            "ok": check.is_ok,
            "text": check.text,
            "advice": check.advice,
            "subjects": list(check.subjects),
        }
        for check in checks
    ]
    document: dict[str, Any] = {"findings": findings, "checks": listed}
    return document if repaired is None else document | {"repaired": asdict(repaired)}


def _print_checks(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        print_line(f"{'ok  ' if check.is_ok else 'LOOK'}  {check.name.ljust(width)}  {printable(check.text)}")
        if check.advice is not None:
            print_line(f"{' ' * (width + 8)}{printable(check.advice)}")
