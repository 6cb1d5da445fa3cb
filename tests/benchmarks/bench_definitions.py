"""Loads and validates 10,000 schedules, writes them as JSON and compares them; prints times and peak memory.

Run as ``python -m tests.benchmarks.bench_definitions [COUNT]``. Each figure is of a fresh process.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

SCHEDULES_IN_A_FILE = 100

HEAD = """\
version: 1
owner: bench
defaults: {timezone: Europe/Berlin, retry: {max_attempts: 5}}
schedules:
"""

SCHEDULE = """\
  job-{number:05d}:
    description: Pull the orders of customer {number}
    cron: "{minute} {hour} * * *"
    job: ingest.daily
    payload: {{source: orders, customer: {number}}}
    idempotency_key: "{{schedule}}:{{local_date}}"
    timeout: 30m
    retry: {{base: 10s, max: 1h}}
    catchup: {{policy: all, grace: 5m}}
    tags: [bench, "customer-{number}"]
"""


def write_files(folder: Path, count: int) -> None:
    """``count`` schedules with 1,440 different expressions, a hundred in a file."""
    for first in range(0, count, SCHEDULES_IN_A_FILE):
        numbers = range(first, min(first + SCHEDULES_IN_A_FILE, count))
        schedules = [SCHEDULE.format(number=n, minute=n % 60, hour=n // 60 % 24) for n in numbers]
        (folder / f"part-{first:05d}.yaml").write_text(HEAD + "".join(schedules), encoding="utf-8")


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), count)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        begun = time.perf_counter()
        from scheduler.core.definitions.codec import definition_hash, definition_to_json
        from scheduler.core.definitions.diff import diff_definitions
        from scheduler.services.definitions import load_definitions

        imported = time.perf_counter()
        definitions = load_definitions(Path(folder), today=date(2026, 11, 30)).schedules
        loaded, peak = time.perf_counter(), peak_megabytes()
        for definition in definitions.values():
            definition_to_json(definition)
        encoded = time.perf_counter()
        for definition in definitions.values():
            definition_hash(definition)
        hashed = time.perf_counter()
        diff_definitions(definitions, dict(definitions))
        compared = time.perf_counter()
    assert len(definitions) == count
    print(f"{count:,} schedules, {size / 1e6:.1f} MB of YAML")
    print(f"import            {imported - begun:6.2f} s")
    print(f"load and validate {loaded - imported:6.2f} s, peak {peak:.0f} MB")
    print(f"to JSON           {encoded - loaded:6.2f} s")
    print(f"hash              {hashed - encoded:6.2f} s")
    print(f"compare           {compared - hashed:6.2f} s, peak {peak_megabytes():.0f} MB")


if __name__ == "__main__":
    main()
