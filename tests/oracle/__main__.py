"""The whole comparison: every zone of tzdata, every change of the clock from 1970 to 2037, every kind of expression.

Run it as ``python -m tests.oracle``; it takes a few minutes on two cores and ends with 1 if anything differs.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from tests.oracle.compare import KINDS, Difference, Walked, all_changes, differences
from tests.oracle.tzif import Change, zones

SHOWN = 20


def main() -> int:
    begun = time.monotonic()
    changes = sorted(all_changes(zones()), key=lambda change: (change.at, change.zone))
    workers = os.cpu_count() or 1
    size = len(changes) // (workers * 8) + 1
    slices = [changes[start : start + size] for start in range(0, len(changes), size)]
    with ProcessPoolExecutor(workers) as pool:
        found = [difference for part in pool.map(_compare, slices) for difference in part]
    for difference in islice(found, SHOWN):
        print(difference)
    count = len({change.zone for change in changes})
    print(
        f"{count} zones, {len(changes):,} changes of the clock, {len(KINDS)} kinds of expression: "
        f"{len(found):,} differences in {time.monotonic() - begun:.0f} s ({_processor_time():.0f} s of processor time)"
    )
    return 1 if found else 0


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _compare(changes: list[Change]) -> list[Difference]:
    walked: Walked = {}
    return [difference for change in changes for difference in differences(change, walked)]


if __name__ == "__main__":
    sys.exit(main())
