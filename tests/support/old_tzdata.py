"""Plan as a process does that has release 2025b of the tz database: ``python -m tests.support.old_tzdata DSN NOW``.

Its ``tzdata`` package is the one in ``tests/data``: two real zones of that release. Prints what was planned and logged.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "tzdata_2025b"


def plan_with_old_tzdata(dsn: str, now: datetime) -> str:
    """Run the planner once in such a process; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.old_tzdata", dsn, now.isoformat()],
        env={"PYTHONPATH": f"{DATA}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout + done.stderr


def main(dsn: str, now: str) -> None:
    """Plan once at that moment."""
    from scheduler.core.time.localtime import tz_version
    from scheduler.services.planner import Planner
    from tests.support.database import connect

    logging.basicConfig(level=logging.INFO)
    with connect(dsn) as connection:
        print(tz_version(), Planner("old").run_once(connection, datetime.fromisoformat(now)))


if __name__ == "__main__":
    main(*sys.argv[1:])
