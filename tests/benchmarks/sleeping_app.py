"""The handler of ``bench_workers``, loaded by real workers with ``--app``: notes its execution, and takes its time."""

from __future__ import annotations

import os
import time

from scheduler.handlers import Job, handler


@handler("bench.sleep")
def sleep(job: Job) -> None:
    """Append the job's id to the file of the payload: one write, which other processes cannot split."""
    log = os.open(job.payload["executions"], os.O_WRONLY | os.O_APPEND)
    os.write(log, f"{job.id}\n".encode())
    os.close(log)
    time.sleep(job.payload["seconds"])
