"""A worker process of the lab: the product's worker in the lab's schema. ``killed.py`` starts it, and kills it.

    python -m scheduler.lab.killed_worker

The first line of its input is a JSON object with ``dsn``, ``name``, ``concurrency`` and ``lease_seconds``; it ends
when its input does, handing back what still runs, so that it never outlives the lab.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from datetime import timedelta

from scheduler.handlers import HandlerRegistry, Job
from scheduler.lab.schema import LabDatabase
from scheduler.services.worker import Worker, WorkerSettings

QUEUE = "killed"


async def sleep(job: Job) -> None:
    """As long as the payload says."""
    await asyncio.sleep(job.payload["seconds"])


def main() -> None:
    """Work until the input ends."""
    logging.basicConfig(level=logging.ERROR)
    order = json.loads(sys.stdin.readline())
    registry = HandlerRegistry()
    registry.handler("lab.sleep")(sleep)
    settings = WorkerSettings(
        queues=(QUEUE,),
        name=order["name"],
        concurrency=order["concurrency"],
        lease=timedelta(seconds=order["lease_seconds"]),
    )
    stop = threading.Event()
    threading.Thread(target=_stop_with_input, args=(stop,), daemon=True).start()
    Worker(LabDatabase(order["dsn"]), registry, settings).run(stop, abort=stop)


def _stop_with_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main()
