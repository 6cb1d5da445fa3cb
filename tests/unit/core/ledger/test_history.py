"""Which dates were expected, across revisions: the past keeps its rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.ledger.history import Expected, History, RevisionSpan, expected_ahead, expected_between, revision_at
from scheduler.core.models import Cron, Timing

GRACE = timedelta(minutes=2)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def timing(cron: str, start: str | None = None) -> Timing:
    return Timing(name="s", rule=Cron(expression=cron), start=None if start is None else at(start))


def history(*spans: tuple[str, str | None, Timing], applied_at: str, ledger_from: str | None = None) -> History:
    return History(
        schedule_id=1,
        name="s",
        applied_at=at(applied_at),
        ledger_from=None if ledger_from is None else at(ledger_from),
        spans=tuple(
            RevisionSpan(
                revision=number,
                valid_from=at(begin),
                valid_until=None if end is None else at(end),
                timing=rule,
                grace=GRACE,
            )
            for number, (begin, end, rule) in enumerate(spans, 1)
        ),
    )


def shown(dates: list[Expected]) -> list[str]:
    return [f"{date.revision} {date.occurrence.logical_date:%m-%dT%H:%M}" for date in dates]


def test_nothing_is_expected_before_the_first_apply_without_a_start() -> None:
    past = history(("2026-01-03T12:00", None, timing("0 0 * * *")), applied_at="2026-01-03T12:00")
    assert shown(expected_between(past, at("2026-01-01"), at("2026-01-05"))) == ["1 01-04T00:00", "1 01-05T00:00"]


def test_the_first_revision_reaches_back_to_start_inclusively() -> None:
    past = history(("2026-01-03T12:00", None, timing("0 0 * * *", "2026-01-02")), applied_at="2026-01-03T12:00")
    assert shown(expected_between(past, at("2025-12-01"), at("2026-01-04"))) == [
        "1 01-02T00:00",
        "1 01-03T00:00",
        "1 01-04T00:00",
    ]


def test_each_date_is_expected_by_the_revision_in_force_at_it() -> None:
    past = history(
        ("2026-01-01T00:00", "2026-01-03T00:00", timing("0 0 * * *")),
        ("2026-01-03T00:00", None, timing("0 12 * * *")),
        applied_at="2026-01-01T00:00",
    )
    assert shown(expected_between(past, at("2026-01-01"), at("2026-01-04T12:00"))) == [
        "1 01-02T00:00",
        "1 01-03T00:00",  # valid_until belongs to the old rule
        "2 01-03T12:00",
        "2 01-04T12:00",
    ]


def test_a_data_interval_reaches_across_a_change_of_the_rule() -> None:
    past = history(
        ("2026-01-01T00:00", "2026-01-03T06:00", timing("0 0 * * *")),
        ("2026-01-03T06:00", None, timing("0 12 * * *")),
        applied_at="2026-01-01T00:00",
    )
    found = expected_between(past, at("2026-01-03T01:00"), at("2026-01-05"))
    assert [date.occurrence.interval_start for date in found] == [at("2026-01-03T00:00"), at("2026-01-03T12:00")]


def test_start_is_read_from_the_newest_revision_earlier_opens_and_later_closes() -> None:
    def with_start(start: str) -> History:
        return history(
            ("2026-01-10T00:00", "2026-01-12T06:00", timing("0 0 * * *", "2026-01-09")),
            ("2026-01-12T06:00", None, timing("0 0 * * *", start)),
            applied_at="2026-01-10T00:00",
        )

    assert len(expected_between(with_start("2026-01-07"), at("2026-01-01"), at("2026-01-12"))) == 6
    assert shown(expected_between(with_start("2026-01-11"), at("2026-01-01"), at("2026-01-12"))) == [
        "1 01-11T00:00",
        "1 01-12T00:00",
    ]


def test_dates_in_a_retirement_are_not_expected() -> None:
    past = history(
        ("2026-01-01T00:00", "2026-01-02T06:00", timing("0 0 * * *")),
        ("2026-01-05T06:00", None, timing("0 0 * * *")),
        applied_at="2026-01-01T00:00",
    )
    assert shown(expected_between(past, at("2026-01-01"), at("2026-01-06"))) == ["1 01-02T00:00", "2 01-06T00:00"]
    assert revision_at(past, at("2026-01-04")) is None


def test_pruned_dates_are_not_expected() -> None:
    past = history(
        ("2026-01-01T00:00", None, timing("0 0 * * *")), applied_at="2026-01-01T00:00", ledger_from="2026-01-04T00:00"
    )
    assert shown(expected_between(past, at("2026-01-01"), at("2026-01-06"))) == ["1 01-05T00:00", "1 01-06T00:00"]


def test_a_retired_schedule_has_nothing_ahead() -> None:
    past = history(("2026-01-01T00:00", "2026-01-02T06:00", timing("0 0 * * *")), applied_at="2026-01-01T00:00")
    assert expected_ahead(past, at("2026-01-02T07:00"), 2) == []


RULES = st.sampled_from(["*/7 * * * *", "0 */3 * * *", "30 2 * * *", "0 0 * * 1", "5 5 1 * *"])
MINUTES = st.integers(min_value=0, max_value=60 * 24 * 20)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(rules=st.lists(RULES, min_size=1, max_size=4), changes=st.lists(MINUTES, min_size=3, max_size=3), cut=MINUTES)
def test_a_change_of_the_rule_at_any_instant_loses_and_doubles_nothing(
    rules: list[str], changes: list[int], cut: int
) -> None:
    begin, end = at("2026-03-15"), at("2026-04-10")
    borders = [begin, *sorted(begin + timedelta(minutes=m) for m in set(changes))][: len(rules)]
    spans = [
        RevisionSpan(
            revision=n + 1,
            valid_from=border,
            valid_until=borders[n + 1] if n + 1 < len(borders) else None,
            timing=Timing(name="s", rule=Cron(expression=rule), timezone="Europe/Berlin"),
            grace=GRACE,
        )
        for n, (border, rule) in enumerate(zip(borders, rules, strict=False))
    ]
    past = History(schedule_id=1, name="s", applied_at=begin, spans=tuple(spans))
    whole = expected_between(past, begin, end)
    dates = [date.occurrence.logical_date for date in whole]
    assert dates == sorted(set(dates))
    middle = begin + timedelta(minutes=cut)
    assert expected_between(past, begin, middle) + expected_between(past, middle, end) == whole
    starts = [date.occurrence.interval_start for date in whole]
    assert starts[1:] == dates[:-1]
