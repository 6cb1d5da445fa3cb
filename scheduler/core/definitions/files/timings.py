"""When a schedule fires: rule, zone, bounds and calendars of a file become a checked ``Timing``.

``core.time.occurrences`` judges the rules; what it says is reported at the place of the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from scheduler.core.definitions.files.named_calendars import calendar_rule
from scheduler.core.definitions.files.register import Register
from scheduler.core.definitions.files.written import Written
from scheduler.core.definitions.key_template import relies_on_local_date, shared_local_date
from scheduler.core.models import (
    EPOCH,
    At,
    CalendarRule,
    Cron,
    DstRule,
    Every,
    RepeatRule,
    Rrule,
    Rule,
    Shift,
    Timing,
)
from scheduler.core.time.cron import parse_cron
from scheduler.core.time.localtime import instant_of, local_clock, zone
from scheduler.core.time.moments import instant_text
from scheduler.core.time.occurrences import compile_timing, occurrences_between
from scheduler.errors import DefinitionError

RULES = ("cron", "every", "rrule", "at")
"""The keys of which a schedule has exactly one."""

YEARS_OF_KEYS = 4
"""How far two dates with the same ``{local_date}`` are looked for."""

_BLANKS = " \t\r\n"
_TICK = timedelta(microseconds=1)


@dataclass(slots=True, kw_only=True)
class Timings:
    """Makes timings; what schedules share (expressions, calendars, checks of keys) is worked out once."""

    register: Register
    today: date
    zones: dict[str, str | None] = field(default_factory=dict)
    calendars: dict[Any, CalendarRule] = field(default_factory=dict)
    checked: dict[tuple[Any, ...], str | None] = field(default_factory=dict)
    shared_days: dict[Timing, date | None] = field(default_factory=dict)

    def timing(self, written: Written) -> Timing | None:
        """The timing of a schedule, or None; whatever is wrong with it is reported."""
        timezone = self._timezone(written)
        dst = DstRule(**written.part("dst"))
        start, end = _bound(written, "start", timezone), _bound(written, "end", timezone)
        if start and end and start >= end:
            written.report("end", f"{instant_text(end)} is not after start {instant_text(start)}: end is exclusive")
        rule = _rule(written, timezone)
        calendar = self._calendar(written, start)
        if rule is None:
            return None
        timing = Timing(
            name=written.name,
            rule=rule[1],
            timezone=timezone,
            dst=dst,
            start=start,
            end=end,
            calendar=calendar,
            jitter=written.value("jitter"),
        )
        if fault := self._fault(timing):
            written.report(rule[0], fault.removeprefix(f"{rule[0]} "))
            return None
        if relies_on_local_date(written.value("idempotency_key")) and (day := self._shared_day(timing)):
            message = f"two dates stand for the local day {day}, so {{local_date}} gives them one key"
            written.report("idempotency_key", f"{message}: use {{logical_date}}")
        return timing

    def _timezone(self, written: Written) -> str:
        """The name of the zone; UTC stands in for one that is missing or unknown, so that checking can go on."""
        name: str | None = written.value("timezone")
        if name is None:
            if "every" not in written.keys and written.lacks_for_sure("timezone"):
                written.report("timezone", 'is missing: write an IANA name like "Europe/Berlin", here or in defaults')
            return "UTC"
        if name not in self.zones:
            try:
                zone(name)
                self.zones[name] = None
            except DefinitionError as error:
                self.zones[name] = str(error).removeprefix("timezone ")
        if fault := self.zones[name]:
            written.report("timezone", fault)
            return "UTC"
        return name

    def _calendar(self, written: Written, start: datetime | None) -> CalendarRule | None:
        model = written.value("calendar")
        if model is None:
            return None
        owner = written.source.shape.model.owner
        known = self.register.calendars.get(owner, {})
        usable = True
        for index, name in enumerate(model.except_):
            usable = usable and self.register.is_usable(owner, name)
            if message := self.register.unknown(owner, "calendars", name):
                written.report("calendar", message, "except", index)
        if not usable:
            return None
        shift: Shift = model.shift
        key = (owner, tuple(model.except_), shift, start.year if start else None)
        if key not in self.calendars:
            first = start.date() if start else None
            self.calendars[key] = calendar_rule(model.except_, known, shift, self.today, first)
        return self.calendars[key]

    def _fault(self, timing: Timing) -> str | None:
        """What ``core.time.occurrences`` has against the rule; asked once for all schedules that share it."""
        key = (timing.rule, timing.timezone, timing.dst, timing.calendar)
        if key not in self.checked:
            try:
                compile_timing(replace(timing, name="", start=None, end=None, jitter=timedelta(0)))
                self.checked[key] = None
            except DefinitionError as error:
                self.checked[key] = "; ".join(problem.message for problem in error.problems)
        return self.checked[key]

    def _shared_day(self, timing: Timing) -> date | None:
        """A local day of the next years that two dates stand for."""
        if _is_once_a_day(timing):
            return None
        rule = replace(timing, name="", jitter=timedelta(0))
        if rule not in self.shared_days:
            self.shared_days[rule] = self._search_shared_day(rule)
        return self.shared_days[rule]

    def _search_shared_day(self, timing: Timing) -> date | None:
        midnight = datetime(self.today.year, self.today.month, self.today.day, tzinfo=UTC)
        after = max(midnight, timing.start or midnight) - _TICK
        until = after + timedelta(days=366 * YEARS_OF_KEYS)
        for limit in (10, 366 * YEARS_OF_KEYS + 1):
            if day := shared_local_date(occurrences_between(timing, after, until, limit)):
                return day
        return None


def _is_once_a_day(timing: Timing) -> bool:
    """Whether a rule plainly has at most one date a local day, so that none needs to be computed."""
    if not isinstance(timing.rule, Cron) or timing.dst.overlap is RepeatRule.BOTH:
        return False
    fields = parse_cron(timing.rule.expression, timing.name)
    return not fields.is_wild and len(fields.minutes) == len(fields.hours) == 1


def _rule(written: Written, timezone: str) -> tuple[str, Rule] | None:
    """The key of the rule and the rule."""
    given = [key for key in RULES if key in written.keys]
    if len(given) > 1:
        written.report(given[-1], f"stands beside {' and '.join(given[:-1])}: keep exactly one of them", at_key=True)
        return None
    if "anchor" in written.keys and given != ["every"]:
        written.report("anchor", "counts only for `every:`: remove it", at_key=True)
    if not given:
        if written.lacks_for_sure(*RULES):
            written.complain('needs exactly one of cron, every, rrule, at; for example cron: "0 2 * * *"')
        return None
    key, schedule = given[0], written.schedule
    if key in written.pruned:
        return None
    match key:
        case "cron":
            return key, Cron(expression=_single_blanks(schedule.cron or ""))
        case "every":
            anchor = _bound(written, "anchor", timezone) or EPOCH
            return key, Every(interval=schedule.every or timedelta(days=1), anchor=anchor)
        case "rrule":
            return key, Rrule(text="\n".join((schedule.rrule or "").strip(_BLANKS).splitlines()))
        case _:
            return key, At(moments=tuple(dict.fromkeys(_as_datetime(moment) for moment in schedule.at or ())))


def _bound(written: Written, key: str, timezone: str) -> datetime | None:
    """The UTC instant of ``start``, ``end`` or ``anchor``; local times are read in the schedule's zone.

    A local time in a gap means the first instant after it. A bare date means midnight, at its first pass if it has two.
    """
    moment: date | None = written.schedule.anchor if key == "anchor" else written.value(key)
    if moment is None:
        return None
    wall = _as_datetime(moment)
    if wall.tzinfo is not None:
        return wall
    clock = local_clock(timezone)
    first, last = (instant_of(clock, wall, pass_) for pass_ in (RepeatRule.FIRST, RepeatRule.LAST))
    if first != last and isinstance(moment, datetime):
        candidates = f"{instant_text(first)} or {instant_text(last)}"
        written.report(key, f"{moment.isoformat()} happens twice in {timezone}: write {candidates}")
    return first


def _as_datetime(moment: date) -> datetime:
    """A bare date as its midnight, without a zone."""
    return moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001


def _single_blanks(expression: str) -> str:
    """Only blanks that can be seen are taken together; ``core.time.cron`` names all others."""
    for blank in _BLANKS:
        expression = expression.replace(blank, " ")
    return " ".join(part for part in expression.split(" ") if part)
