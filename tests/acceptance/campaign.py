"""Long campaigns that ``make test`` runs in short: ``python -m tests.acceptance.campaign kills|outages|zombies``.

Each starts a server of its own, prints its seed and figures, and ends with exit code 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.kill_cycles import choose, run_cycles
from tests.acceptance.outages import MONTH, YEAR, recover
from tests.acceptance.zombie_cycles import choose as choose_zombies
from tests.acceptance.zombie_cycles import run_cycles as run_zombies
from tests.support.cluster import Cluster, available_servers
from tests.support.database import Servers, cloned_database

KILL_CYCLES = 400
ZOMBIE_CYCLES = 200


def kills(cluster: Cluster, folder: Path, options: argparse.Namespace) -> bool:
    """Cycles of kill -9 at named points with two tickers alive."""
    cycles = choose(options.seed, options.cycles or KILL_CYCLES)
    print(f"seed {options.seed}, {len(cycles)} cycles", flush=True)
    with cloned_database(cluster) as dsn:
        report = run_cycles(dsn, folder, cycles, options.seed, say=lambda line: print(line, flush=True))
    print("\n".join(report.lines()))
    return not (report.lost or report.doubled or report.wrong)


def outages(cluster: Cluster, folder: Path, options: argparse.Namespace) -> bool:
    """A year and a month without a ticker: each date decided within 60 s and 300 MB, fresh dates within 2 s.

    Other programs on this machine cost wall time that is not ours: the bound is on processor time, and lateness
    counts when the machine was not much disturbed.
    """
    is_kept = True
    for outage in (YEAR, MONTH):
        with cloned_database(cluster) as dsn:
            report = recover(dsn, folder, outage)
        is_disturbed = report.seconds > 1.5 * report.processor_seconds
        print(*report.lines(), *(["  (the machine was busy with other things)"] if is_disturbed else []), sep="\n")
        is_kept &= not report.faults and report.processor_seconds < 60 and report.megabytes < 300
        is_kept &= is_disturbed or report.fresh_lateness < 2
    return is_kept


def zombies(cluster: Cluster, folder: Path, options: argparse.Namespace) -> bool:
    """Workers stopped at named points for longer than their lease, and continued."""
    cycles = choose_zombies(options.seed, options.cycles or ZOMBIE_CYCLES)
    print(f"seed {options.seed}, {len(cycles)} cycles", flush=True)
    with cloned_database(cluster) as dsn:
        report = run_zombies(dsn, folder, cycles, options.seed, say=lambda line: print(line, flush=True))
    print(*report.lines(), sep="\n")
    return sum(report.reached.values()) == len(cycles) and not (report.stale_writes or report.faults)


CAMPAIGNS: dict[str, Callable[[Cluster, Path, argparse.Namespace], bool]] = {
    "kills": kills,
    "outages": outages,
    "zombies": zombies,
}


def main() -> int:
    """Run one campaign; 0 when every promise held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--cycles", type=int, help=f"of kills ({KILL_CYCLES}) or of zombies ({ZOMBIE_CYCLES})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    servers = Servers()
    begin = time.monotonic()
    try:
        cluster = servers.get(next(iter(available_servers())))
        with tempfile.TemporaryDirectory(prefix="sched-campaign-") as folder:
            is_kept = CAMPAIGNS[options.campaign](cluster, Path(folder), options)
    finally:
        servers.close()
    print(f"{options.campaign}: {'kept' if is_kept else 'BROKEN'} after {time.monotonic() - begin:.0f} s")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
