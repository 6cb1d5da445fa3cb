"""In UTC our firings are those of croniter and cronsim for what all three read alike; the differences are here too.

docs/decisions/0008 lists the differences with their reasons. Expressions are drawn with a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import pytest
from croniter import CroniterBadDateError, croniter
from cronsim import CronSim, CronSimError

from scheduler.core.models import Cron, Timing
from scheduler.core.time.cron import croniter_dates, croniter_reads_alike, parse_cron
from scheduler.core.time.occurrences import firings, next_occurrences
from scheduler.errors import DefinitionError

BEGIN = datetime(2026, 1, 15, 10, 20, tzinfo=UTC)
END = datetime(2060, 1, 1, tzinfo=UTC)
EXPRESSIONS, DATES = 400, 12
SEED = 20260115


def ours(expression: str, count: int = DATES) -> list[datetime]:
    return list(islice(firings(expression, "UTC", BEGIN, END), count))


def of_croniter(expression: str, count: int = DATES) -> list[datetime]:
    """croniter with its switch for joining day fields as Debian's cron does."""
    dates = croniter(expression, BEGIN, implement_cron_bug=True)
    try:
        return [dates.get_next(datetime) for _ in range(count)]
    except CroniterBadDateError:
        return []


def of_cronsim(expression: str, count: int = DATES) -> list[datetime]:
    return list(islice(CronSim(expression, BEGIN), count))


def drawn() -> Iterator[str]:
    """Expressions of plain values, ranges of more than one value, steps, lists, names and L."""
    chance = random.Random(SEED)
    print(f"seed {SEED}")

    def item(low: int, high: int) -> str:
        first = chance.randint(low, high - 1)
        last = chance.randint(first + 1, high)
        step = chance.randint(1, max(1, (last - first) // 2))
        return chance.choice([str(first), str(first), f"{first}-{last}", f"{first}-{last}/{step}"])

    def field(low: int, high: int, *special: str) -> str:
        kind = chance.random()
        if kind < 0.35:
            return "*"
        if kind < 0.5:
            return f"*/{chance.randint(2, (high - low) // 2)}"
        if special and kind < 0.62:
            return chance.choice(special)
        return ",".join(item(low, high) for _ in range(chance.randint(1, 3)))

    for _ in range(EXPRESSIONS):
        yield " ".join(
            (
                field(0, 59),
                field(0, 23),
                field(1, 28, "L", "15", "31"),
                field(1, 12, "jan", "MAR-may", "jun,dec"),
                field(0, 6, "mon-fri", "sun", "7", "5-7"),
            )
        )


def test_drawn_expressions_fire_as_in_croniter_and_cronsim() -> None:
    differing = []
    for expression in drawn():
        found = ours(expression)
        if found != of_croniter(expression):
            differing.append(("croniter", expression))
        if found != of_cronsim(expression):
            differing.append(("cronsim", expression))
    assert differing == []


def test_fields_that_croniter_reads_alike_have_the_same_dates_and_others_are_compared_by_date() -> None:
    alike = [expression for expression in drawn() if croniter_reads_alike(parse_cron(expression, ""))]
    assert len(alike) > EXPRESSIONS / 4
    for expression in alike:
        assert croniter_dates(expression, BEGIN, DATES) == (ours(expression) or None)
    for expression in ("0 2-2 * * *", "0 16 */2 * SAT", "0 0 13 * fri#2", "0 0 * * 5L", "0 0 L * *", "5-5,7 * * * *"):
        assert not croniter_reads_alike(parse_cron(expression, ""))


@pytest.mark.parametrize("expression", ["0 0 * * 1#2", "0 0 * * fri#1,mon#3", "0 0 29 2 *", "0 0 L 2 *", "0 0 * * 0-6"])
def test_special_forms_fire_as_in_croniter_and_cronsim(expression: str) -> None:
    assert ours(expression, 4) == of_croniter(expression, 4)
    assert ours(expression, 4) == of_cronsim(expression, 4)


def test_the_last_friday_is_spelled_as_in_cronsim_and_quartz() -> None:
    assert ours("0 0 * * 5L") == of_cronsim("0 0 * * 5L") == of_croniter("0 0 * * L5")


@pytest.mark.parametrize("expression", ["@yearly", "@monthly", "@weekly", "@daily", "@hourly"])
def test_short_forms_fire_as_in_croniter(expression: str) -> None:
    assert ours(expression) == of_croniter(expression)


@pytest.mark.parametrize(
    ("expression", "as_star"),
    [("0 2-2 * * *", "0 * * * *"), ("5-5 0 * * *", "* 0 * * *"), ("0 0 * * 3-3", "0 0 * * *")],
)
def test_croniter_reads_a_range_of_one_value_as_a_star(expression: str, as_star: str) -> None:
    """The difference that would hurt most: ours is the one value, as in cronsim and Debian's cron."""
    assert ours(expression) == of_cronsim(expression)
    assert of_croniter(expression) == ours(as_star)


def test_croniter_joins_a_starred_day_field_with_or_unless_told() -> None:
    plain = croniter("0 16 */2 * SAT", BEGIN)
    assert [plain.get_next(datetime) for _ in range(DATES)] != ours("0 16 */2 * SAT")
    assert of_cronsim("0 16 */2 * SAT") == ours("0 16 */2 * SAT")


def test_croniter_does_not_join_a_numbered_weekday_with_or() -> None:
    assert of_croniter("0 0 13 * fri#2", 4) != ours("0 0 13 * fri#2", 4)
    assert croniter_dates("0 0 13 * fri#2", BEGIN, 4) == ours("0 0 * * fri#2", 4)
    assert of_cronsim("0 0 13 * fri#2", 4) == ours("0 0 13 * fri#2", 4)


@pytest.mark.parametrize("expression", ["0 22-2 * * *", "0 0 15W * *", "R 0 * * *", "0 0 1 * * 30"])
def test_what_croniter_accepts_and_we_refuse(expression: str) -> None:
    assert croniter.is_valid(expression)
    with pytest.raises(DefinitionError):
        ours(expression)


@pytest.mark.parametrize("expression", ["0\u00a00 * * *"])
def test_what_cronsim_accepts_and_we_refuse(expression: str) -> None:
    assert CronSim(expression, BEGIN)
    with pytest.raises(DefinitionError):
        ours(expression)


def test_an_expression_that_never_matches_is_refused_by_cronsim_and_parked_here() -> None:
    with pytest.raises(CronSimError):
        CronSim("0 0 31 2 *", BEGIN)
    assert of_croniter("0 0 31 2 *") == []
    assert next_occurrences(Timing(name="parked", rule=Cron(expression="0 0 31 2 *")), BEGIN, 1) == []
