"""Rules and dates in plain language, for people who look before they apply: previews, lint, ``explain``.

Text is built from the same field sets that decide the dates, so that it cannot say something else. Nothing here
decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from scheduler.core.models import At, Cron, Every, Occurrence, RepeatRule, Timing
from scheduler.core.time.calendars import excluding_calendar
from scheduler.core.time.cron import CronFields, parse_cron
from scheduler.core.time.localtime import Stretch, local_clock, minute_of, wall_of
from scheduler.core.time.rrule import parse_recurrence

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ORDINALS = ("first", "second", "third", "fourth", "fifth")


def describe_rule(timing: Timing) -> str:
    """The rule in one line of plain English, with its zone where it has one; no dates."""
    rule = timing.rule
    if isinstance(rule, Cron):
        return f"{_describe_cron(parse_cron(rule.expression, timing.name))} ({timing.timezone})"
    if isinstance(rule, Every):
        return f"every {_duration(rule.interval)}, counted from {rule.anchor:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(rule, At):
        return f"at {len(rule.moments)} moment{'s' if len(rule.moments) != 1 else ''} ({timing.timezone})"
    recurrence = parse_recurrence(rule.text, local_clock(timing.timezone).zone)
    unit = {"HOURLY": "hour", "DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}
    every = f"every {recurrence.interval} {unit[recurrence.frequency]}s"
    every = every if recurrence.interval > 1 else f"every {unit[recurrence.frequency]}"
    parts = ", ".join(f"{name.lower()} {_listed(values)}" for name, values in recurrence.by.items())
    days = ", ".join(f"{number or ''} {WEEKDAYS[(day + 1) % 7]}".strip() for day, number in recurrence.weekdays)
    ends = f"{recurrence.count} times" if recurrence.count else ""
    text = ", ".join(filter(None, (f"{every} from {recurrence.start:%Y-%m-%d %H:%M}", days, parts, ends)))
    return f"{text} ({timing.timezone})"


def notes(timing: Timing, occurrence: Occurrence) -> list[str]:
    """What is unusual about one date: the clock changes, or a calendar moves it. Empty for most dates."""
    found = []
    if occurrence.wall is not None:
        found += _clock_notes(timing, occurrence, occurrence.wall)
    name = excluding_calendar(timing.calendar, occurrence.local_date)
    if name is not None:
        due = occurrence.due_at.astimezone(local_clock(timing.timezone).zone)
        found.append(f"{occurrence.local_date} is excluded by {name}: due on {due:%Y-%m-%d %H:%M} instead")
    return found


def _clock_notes(timing: Timing, occurrence: Occurrence, wall: datetime) -> list[str]:
    minute = minute_of(occurrence.logical_date)
    stretch = local_clock(timing.timezone).stretch_at(minute)
    shown = wall_of(minute + stretch.offset)
    asked = f"{wall:%H:%M}" if wall.date() == shown.date() else f"{wall:%Y-%m-%d %H:%M}"
    if shown != wall.replace(second=0, fold=0):
        return [f"clocks go forward: {asked} does not exist, fires at {shown:%H:%M}"]
    if not (stretch.shown_before or stretch.shown_again):
        return []
    if _is_wild(timing):
        return [f"clocks go back: {asked} happens twice, fires both times ({_pass(stretch)} time)"]
    if timing.dst.overlap is RepeatRule.BOTH:
        return [f"clocks go back: {asked} happens twice, fires twice ({_pass(stretch)} time)"]
    which = "" if timing.dst.overlap is RepeatRule.FIRST else ", the last time"
    return [f"clocks go back: {asked} happens twice, fires once{which}"]


def _pass(stretch: Stretch) -> str:
    return "second" if stretch.shown_before else "first"


def _is_wild(timing: Timing) -> bool:
    if isinstance(timing.rule, Cron):
        return parse_cron(timing.rule.expression, timing.name).is_wild
    if isinstance(timing.rule, At | Every):
        return False
    return parse_recurrence(timing.rule.text, local_clock(timing.timezone).zone).frequency == "HOURLY"


def _describe_cron(fields: CronFields) -> str:
    months = "" if len(fields.months) == 12 else " in " + _spans(fields.months, lambda month: MONTHS[month - 1])
    return f"{_times(fields)} {_day_text(fields)}{months}"


def _times(fields: CronFields) -> str:
    minutes, hours = fields.minutes, fields.hours
    if len(minutes) * len(hours) <= 6:
        return "at " + _joined([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes], "and") + ","
    step = minutes[1] - minutes[0] if len(minutes) > 1 else 60
    if len(minutes) == 60:
        often = "every minute"
    elif minutes == tuple(range(0, 60, step)) and 60 % step == 0 and step < 60:
        often = f"every {step} minutes"
    else:
        often = f"at minute {_spans(minutes, str)}"
    if len(hours) < 24:
        return f"{often} of hour {_spans(hours, str)},"
    return f"{often} of every hour," if often.startswith("at") else f"{often},"


def _day_text(fields: CronFields) -> str:
    day = _month_day_text(fields)
    weekday = _weekday_text(fields)
    if not day and not weekday:
        return "every day"
    if fields.joins_days_with_or:
        return f"{day} and also {weekday}"
    return f"{day}, only if it is {weekday.removeprefix('on ')}" if day and weekday else day or weekday


def _month_day_text(fields: CronFields) -> str:
    days = [day for day in range(1, 32) if fields.days >> day & 1]
    if len(days) == 31:
        return ""
    parts = [f"on day {_spans(days, str)} of the month"] if days else []
    return _joined(parts + (["on the last day of the month"] if fields.last_day else []), "and")


def _weekday_text(fields: CronFields) -> str:
    days = [day for day in (1, 2, 3, 4, 5, 6, 0) if fields.weekdays >> day & 1]
    if len(days) == 7:
        return ""
    parts = [f"on {_spans([day or 7 for day in days], lambda day: WEEKDAYS[day % 7])}"] if days else []
    parts += [f"on the {_ORDINALS[number - 1]} {WEEKDAYS[day]} of the month" for day, number in fields.nth_weekdays]
    parts += [f"on the last {WEEKDAYS[day]} of the month" for day in range(7) if fields.last_weekdays >> day & 1]
    return _joined(parts, "and")


def _spans(values: Sequence[int], name: Callable[[int], str]) -> str:
    """``1, 2, 3, 5`` as ``1 to 3 and 5``, two neighbours stay two; a long even series is shortened."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    if len(values) > 5 and len(steps) == 1 and steps != {1}:
        return f"{name(values[0])}, {name(values[1])}, ... {name(values[-1])}"
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts = []
    for run in runs:
        texts += [f"{name(run[0])} to {name(run[-1])}"] if len(run) > 2 else [name(value) for value in run]
    return _joined(texts, "and")


def _joined(texts: Sequence[str], word: str) -> str:
    return f"{', '.join(texts[:-1])} {word} {texts[-1]}" if len(texts) > 1 else "".join(texts)


def _listed(values: Sequence[int]) -> str:
    return _joined([str(value) for value in values], "and")


def _duration(interval: timedelta) -> str:
    seconds = interval // timedelta(seconds=1)
    for unit, size in (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if seconds % size == 0:
            count = seconds // size
            return unit if count == 1 else f"{count} {unit}s"
    return f"{seconds} seconds"
