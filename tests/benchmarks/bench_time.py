"""What one occurrence costs: this project, croniter and cronsim side by side, in processor time of one run.

Run it as ``python -m tests.benchmarks.bench_time``. croniter and cronsim are slower, so they compute a shorter range
and the figure is per occurrence; the same expression and zone, from the same start.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from scheduler.core.models import Cron, Every, Rule, Timing
from scheduler.core.time.localtime import tz_version
from scheduler.core.time.occurrences import compile_timing, firings, next_occurrences, occurrences_between

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
FOREVER = timedelta(days=365 * 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Nanoseconds per occurrence of each library, for one expression in one zone."""

    expression: str
    timezone: str
    firings: float
    occurrences: float
    croniter: float
    cronsim: float


def measure(expression: str, timezone: str, span: timedelta = YEAR, count: int = 20_000) -> Figure:
    """The figures of one expression: ours over ``span``, the others over their first ``count`` dates."""
    timing = Timing(name="bench", rule=Cron(expression=expression), timezone=timezone)
    local = BEGIN.astimezone(ZoneInfo(timezone))

    def by_croniter() -> int:
        dates = croniter(expression, local)
        for _ in range(count):
            dates.get_next(datetime)
        return count

    return Figure(
        expression=expression,
        timezone=timezone,
        firings=nanoseconds_each(lambda: len(list(firings(expression, timezone, BEGIN, BEGIN + span)))),
        occurrences=nanoseconds_each(lambda: len(occurrences_between(timing, BEGIN, BEGIN + span))),
        croniter=nanoseconds_each(by_croniter),
        cronsim=nanoseconds_each(lambda: len(list(islice(CronSim(expression, local), count)))),
    )


def nanoseconds_each(compute: Callable[[], int]) -> float:
    """Processor time for each of the dates that ``compute`` counts."""
    begun = time.process_time_ns()
    found = compute()
    return (time.process_time_ns() - begun) / found


def microseconds_a_schedule(rules: list[Rule]) -> float:
    """Compiling and planning two dates of each rule, in a zone with clock changes; nothing is shared but the zone."""
    begun = time.process_time_ns()
    for rule in rules:
        timing = Timing(name="bench", rule=rule, timezone="Europe/Berlin")
        compile_timing(timing)
        next_occurrences(timing, BEGIN, 2)
    return (time.process_time_ns() - begun) / len(rules) / 1000


def main() -> int:
    print(f"processor time per occurrence in ns; Python {sys.version.split()[0]}, tzdata {tz_version()}")
    print(f"{'expression':<16}{'zone':<18}{'firings':>9}{'occurrences':>13}{'croniter':>10}{'cronsim':>9}")
    for expression, span, count in (
        ("* * * * *", YEAR, 20_000),
        ("*/15 * * * *", YEAR, 10_000),
        ("0 * * * *", YEAR, 8_000),
        ("30 2 * * *", FOREVER, 2_000),
        ("0 9 * * 1-5", FOREVER, 2_000),
        ("0 0 29 2 *", FOREVER, 10),
    ):
        for timezone in ("UTC", "Europe/Berlin"):
            figure = measure(expression, timezone, span, count)
            print(
                f"{expression:<16}{timezone:<18}{figure.firings:>9,.0f}{figure.occurrences:>13,.0f}"
                f"{figure.croniter:>10,.0f}{figure.cronsim:>9,.0f}"
            )
    print("\nprocessor time to compile a schedule and find two dates in us, for 1,000 different rules of a kind")
    kinds: dict[str, list[Rule]] = {
        "0 0 29 2 *": [Cron(expression=f"{n % 60} {n // 60} 29 2 *") for n in range(1000)],
        "0 0 31 2 *": [Cron(expression=f"{n % 60} {n // 60} 31 2 *") for n in range(1000)],
        "* * * * *": [Cron(expression=f"{n % 50}-59 {n // 50}-23 * * *") for n in range(1000)],
        "0 2 * * *": [Cron(expression=f"{n % 60} {n // 60} * * *") for n in range(1000)],
        "every: 10s": [Every(interval=timedelta(seconds=n + 1)) for n in range(1000)],
    }
    for kind, rules in kinds.items():
        print(f"{kind:<34}{microseconds_a_schedule(rules):>9,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
