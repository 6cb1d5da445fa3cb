"""Open psql on the embedded PostgreSQL of this directory, migrated; ``make db`` runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from scheduler.errors import SchedulerError
from scheduler.storage.binaries import find_binaries
from scheduler.storage.database import Database
from scheduler.storage.embedded import EmbeddedServer, find_directory
from scheduler.storage.migrations import migrate


def main() -> int:
    """Psql's exit code, or ours if there is no database to show."""
    directory = find_directory(Path.cwd())
    print(f"the embedded PostgreSQL in {directory}", file=sys.stderr)
    try:
        with EmbeddedServer.open(directory) as server:
            with Database(server.dsn).connect() as connection:
                migrate(connection)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for psql, which cancels a query
            return subprocess.run([find_binaries().program("psql"), server.dsn], check=False).returncode
    except SchedulerError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
