"""LISTEN as a hint: told when it works, waited on without a transaction, never relied upon.

Behind a pooler in transaction mode LISTEN succeeds and never delivers, and would stay behind on a connection that
others use. A pooler is recognised by the process id it reports, which is not the server's.
"""

from __future__ import annotations

from scheduler.storage.database import Connection, mapped_errors

JOBS_CHANNEL = "sched_jobs"


def listen(connection: Connection, channel: str = JOBS_CHANNEL) -> bool:
    """Begin to listen; False where notifications would not arrive, and then nothing was done."""
    with mapped_errors():
        row = connection.execute("select pg_backend_pid()").fetchone()
        if row is None or row[0] != connection.info.backend_pid:
            return False
        connection.execute(f"listen {channel}")
    return True


def next_payloads(connection: Connection, timeout: float) -> list[str]:
    """Wait for a notification at most ``timeout`` seconds; the payloads that arrived, often none."""
    with mapped_errors():
        return [notify.payload for notify in connection.notifies(timeout=timeout, stop_after=1)]
