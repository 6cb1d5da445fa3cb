"""Handlers that run in processes of their own and do their worst."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from scheduler.handlers import Discard, HandlerRegistry, Job

registry = HandlerRegistry()


@registry.handler("process.echo", isolation="process")
def echo(job: Job) -> dict[str, Any]:
    job.metadata["seen"] = True
    return {"pid": os.getpid(), "payload": job.payload, "attempt": job.attempt}


@registry.handler("process.async", isolation="process")
async def asynchronous(job: Job) -> str:
    await asyncio.sleep(0)
    return "awaited"


@registry.handler("process.raise", isolation="process")
def fail(job: Job) -> None:
    if job.payload.get("discard"):
        raise Discard("no use")
    raise ValueError("broken")


@registry.handler("process.die", isolation="process")
def die(job: Job) -> None:
    how = job.payload["how"]
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "memory":
        os.kill(os.getpid(), 9)  # what the kernel does when memory runs out
    elif how == "loop":
        while True:
            sum(range(100_000_000))  # holds the interpreter


@registry.handler("process.children", isolation="process")
def children(job: Job) -> None:
    child = subprocess.Popen(["sleep", "600"])
    Path(job.payload["pid_file"]).write_text(str(child.pid))
    time.sleep(600)


@registry.handler("process.transaction", isolation="process")
def in_transaction(job: Job) -> str:
    with job.transaction() as connection:
        connection.execute("insert into public.output values (%s)", (job.id,))
        job.result = "written"
        time.sleep(job.payload.get("seconds", 0))
    return "ignored"


@registry.handler("process.completed", isolation="process")
def go_on_after_completion(job: Job) -> None:
    with job.transaction():
        pass
    time.sleep(job.payload["seconds"])
    Path(job.payload["file"]).write_text("written")


@registry.handler("process.progress", isolation="process")
def report(job: Job) -> str:
    job.progress(0.2, "began")
    job.progress(0.4, "page 40 of 100")
    while not Path(job.payload["go_on"]).exists():
        time.sleep(0.05)
    return "done"
