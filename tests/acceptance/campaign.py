"""Long campaigns that ``make test`` runs in short: ``python -m tests.acceptance.campaign kills``, or ``outages``.

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
from tests.support.cluster import available_servers
from tests.support.database import Servers

KILL_CYCLES = 400


def kills(dsn: str, folder: Path, options: argparse.Namespace) -> bool:
    """Cycles of kill -9 at named points with two tickers alive."""
    cycles = choose(options.seed, options.cycles)
    print(f"seed {options.seed}, {len(cycles)} cycles", flush=True)
    report = run_cycles(dsn, folder, cycles, options.seed, say=lambda line: print(line, flush=True))
    print("\n".join(report.lines()))
    return not (report.lost or report.doubled or report.wrong)


CAMPAIGNS: dict[str, Callable[[str, Path, argparse.Namespace], bool]] = {"kills": kills}


def main() -> int:
    """Run one campaign; 0 when every promise held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--cycles", type=int, default=KILL_CYCLES, help="of kills")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    servers = Servers()
    begin = time.monotonic()
    try:
        with (
            servers.recycled(next(iter(available_servers()))).lend() as dsn,
            tempfile.TemporaryDirectory(prefix="sched-campaign-") as folder,
        ):
            is_kept = CAMPAIGNS[options.campaign](dsn, Path(folder), options)
    finally:
        servers.close()
    print(f"{options.campaign}: {'kept' if is_kept else 'BROKEN'} after {time.monotonic() - begin:.0f} s")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
