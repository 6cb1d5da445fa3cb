"""``make demo``: the whole path once, with the commands a person would type, on the embedded PostgreSQL.

Applies ``schedules/``, fills the last 30 days of the daily example, fires what is due, works everything off and says
what ran, what did not and why. Finite, and run again it does nothing twice.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scheduler.errors import SchedulerError
from scheduler.storage.database import Database
from scheduler.storage.embedded import EmbeddedServer, find_directory
from scheduler.storage.schedules import Outcome, outcomes

EXAMPLE = "document-statistics"
DAYS = 30
FURTHER = (
    "sched status",
    f"sched jobs list --schedule {EXAMPLE}",
    "sched gaps --since 2026-01-01",
    f"sched preview {EXAMPLE}",
    "sched up --app scheduler.examples.documents",
)


def main() -> int:
    """Run the demo in the working directory; returns the exit code of the first command that failed, or 0."""
    try:
        return _demo()
    except SchedulerError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _demo() -> int:
    since = datetime.now(UTC).date() - timedelta(days=DAYS)
    commands = (
        ("migrate",),
        ("apply", "schedules"),
        ("backfill", "--since", since.isoformat(), "--schedule", EXAMPLE, "--reason", "demo"),
        ("tick", "--once"),
        ("worker", "--app", "scheduler.examples.documents", "--drain"),
        ("status",),
    )
    # Holding the server open here spares every command a start and a stop.
    with EmbeddedServer.open(find_directory(Path.cwd())) as server:
        for command in commands:
            code = _run(command)
            if code:
                return code
        _tell(Database(server.dsn))
    return 0


def _run(command: Sequence[str]) -> int:
    print(f"\n$ sched {shlex.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", "scheduler.interfaces.cli.main", *command], check=False).returncode


def _tell(database: Database) -> None:
    with database.connection() as connection:
        found = outcomes(connection)
    print("\nWhat ran:")
    _list([row for row in found if row.state == "enqueued"], "nothing yet")
    print("\nWhat was skipped or missed, and why:")
    _list([row for row in found if row.state in ("skipped", "missed", "waived")], "nothing so far")
    print("\nTo look further:")
    for command in FURTHER:
        print(f"  {command}")


def _list(rows: Sequence[Outcome], otherwise: str) -> None:
    for row in rows:
        reason = f" ({row.reason})" if row.reason else ""
        dates = f"{row.first:%Y-%m-%d}" if row.first == row.last else f"{row.first:%Y-%m-%d} to {row.last:%Y-%m-%d}"
        jobs = f"; jobs: {row.jobs}" if row.jobs else ""
        print(f"  {row.schedule}: {row.dates} {row.state}{reason}, {dates}{jobs}")
    if not rows:
        print(f"  {otherwise}")


if __name__ == "__main__":
    sys.exit(main())
