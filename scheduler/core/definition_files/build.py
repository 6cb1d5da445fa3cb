"""Models to definitions: defaults, moments, calendars, and every check that takes more than one field or file.

Pure: ``services.definitions`` reads the files. All problems are collected; nothing here stops at the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from scheduler.core.cron import parse_cron
from scheduler.core.definition_files.model import CommonModel, Model, RunModel, ScheduleModel
from scheduler.core.definition_files.named_calendars import calendar_rule
from scheduler.core.definition_files.register import Register, Source
from scheduler.core.durations import format_duration
from scheduler.core.key_template import relies_on_local_date, shared_local_date
from scheduler.core.localtime import instant_of, local_clock, zone
from scheduler.core.models import (
    EPOCH,
    At,
    CalendarRule,
    Catchup,
    Cron,
    Definition,
    DefinitionSet,
    DstRule,
    Every,
    RepeatRule,
    RetryPolicy,
    Rrule,
    Rule,
    Shift,
    Timing,
)
from scheduler.core.moments import instant_text
from scheduler.core.occurrences import compile_timing, occurrences_between
from scheduler.core.storable import Path, storable, storage_faults
from scheduler.errors import DefinitionError, Problem

RULES = ("cron", "every", "rrule", "at")
"""The keys of which a schedule has exactly one."""

YEARS_OF_KEYS = 4
"""How far two dates with the same ``{local_date}`` are looked for."""

_BLANKS = " \t\r\n"
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The definitions of all files, and what is wrong with them; with problems the set is not complete."""

    definitions: DefinitionSet
    problems: tuple[Problem, ...]


def build_definitions(sources: Sequence[Source], today: date, *, is_complete: bool = True) -> Build:
    """Definitions of all ``sources``, in order.

    ``today`` decides for which years holidays are looked up. If not ``is_complete``, some file could not be read:
    names that are defined nowhere are then not complained about, since that file may define them.
    """
    register = Register(is_complete=is_complete)
    for source in sources:
        register.add_shared(source)
    register.check_calendars(today)
    timings = _Timings(register=register, today=today)
    definitions = [definition for source in sources for definition in _definitions(source, register, timings)]
    definition_set = DefinitionSet(
        schedules={definition.name: definition for definition in definitions},
        limits=register.limits,
        owners=frozenset(source.shape.model.owner for source in sources),
    )
    return Build(definitions=definition_set, problems=tuple(dict.fromkeys(register.problems)))


def _definitions(source: Source, register: Register, timings: _Timings) -> Iterator[Definition]:
    pruned: dict[str, set[str]] = {}
    for path in source.shape.pruned:
        if path[0] == "schedules" and len(path) == 3:
            pruned.setdefault(str(path[1]), set()).add(str(path[2]))
    defaults = source.shape.model.defaults
    default_parts = {key: _fields(getattr(defaults, key)) for key in ("dst", "retry", "catchup")}
    for name, schedule in source.shape.model.schedules.items():
        if register.is_first(source.document, name):
            fields: dict[str, Any] = source.document.value["schedules"][name]
            written = _Written(
                name=name,
                schedule=schedule,
                own=schedule.model_fields_set,
                defaults=defaults,
                default_parts=default_parts,
                keys=frozenset(key for key, value in fields.items() if value is not None),
                pruned=frozenset(pruned.get(name, ())),
                source=source,
                register=register,
            )
            if definition := _definition(written, timings):
                yield definition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """One schedule as it stands in its file: its own values before the defaults, and where they are.

    ``own`` are the keys of ``schedule`` that are its own, null included; ``keys`` those with a value, the faulty ones
    included; ``pruned`` the faulty ones.
    """

    name: str
    schedule: ScheduleModel
    own: set[str]
    defaults: CommonModel
    default_parts: Mapping[str, Mapping[str, Any]]
    keys: frozenset[str]
    pruned: frozenset[str]
    source: Source
    register: Register

    def value(self, key: str) -> Any:
        """The schedule's own value, null included, else the default."""
        return getattr(self.schedule if key in self.own else self.defaults, key)

    def part(self, key: str) -> Mapping[str, Any]:
        """The fields of ``dst``, ``retry`` or ``catchup``: each the schedule's own, else the default."""
        if key not in self.own:
            return self.default_parts[key]
        model: Model = getattr(self.schedule, key)
        return {**self.default_parts[key], **{name: getattr(model, name) for name in model.model_fields_set}}

    def lacks_for_sure(self, *keys: str) -> bool:
        """Whether none of ``keys`` is written, not even with a fault, nor under a name we do not know."""
        unknown = self.pruned - ScheduleModel.model_fields.keys()
        faulty_default = any(("defaults", key) in self.source.shape.pruned for key in keys)
        return not (self.keys & set(keys) or unknown or faulty_default)

    def report(self, key: str, message: str, *inner: str | int, at_key: bool = False) -> None:
        """A problem with ``key``: where the schedule has it, else in the defaults, else at the schedule's name."""
        path: Path = ("schedules", self.name, key, *inner)
        if key not in self.keys and key in self.defaults.model_fields_set:
            path = ("defaults", key, *inner)
        self.register.report(self.source.document, path, message, at_key=at_key)

    def complain(self, message: str) -> None:
        """A problem with the schedule as a whole."""
        self.register.report(self.source.document, ("schedules", self.name), message, at_key=True)


def _fields(model: Model) -> dict[str, Any]:
    return {name: getattr(model, name) for name in type(model).model_fields}


def _definition(written: _Written, timings: _Timings) -> Definition | None:
    """The definition, or None if it has a problem; all its problems are then reported."""
    register = written.register
    known_problems = len(register.problems)
    timing = timings.timing(written)
    job_type, run = _work(written)
    definition = Definition(
        name=written.name,
        owner=written.source.shape.model.owner,
        timing=timing or Timing(name=written.name, rule=Every(interval=timedelta(days=1))),
        job_type=job_type,
        run=run,
        description=written.schedule.description,
        payload=_stored(written, "payload", written.schedule.payload),
        idempotency_key=written.value("idempotency_key"),
        queue=written.value("queue"),
        priority=written.value("priority"),
        limit=_limit(written),
        timeout=written.value("timeout"),
        retry=_retry(written),
        catchup=_catchup(written),
        overlap=written.value("overlap"),
        finish_by=written.value("finish_by"),
        on_final_failure=written.value("on_final_failure"),
        renamed_from=_renamed_from(written),
        tags=tuple(dict.fromkeys(written.value("tags"))),
        file=written.source.path,
    )
    if written.pruned or timing is None or len(register.problems) > known_problems:
        return None
    return definition


def _work(written: _Written) -> tuple[str, Mapping[str, Any] | None]:
    """The job type, and the settings of a built-in one."""
    schedule = written.schedule
    if {"job", "run"} <= written.keys:
        written.report("run", "stands beside job: keep one of the two", at_key=True)
    elif written.lacks_for_sure("job", "run"):
        written.complain("needs `job:` (a registered handler) or `run:` with shell, http or sql")
    if schedule.run is None:
        return schedule.job or "", None
    given = [kind for kind in ("shell", "http", "sql") if getattr(schedule.run, kind) is not None]
    if len(given) != 1:
        written.report("run", f"needs exactly one of shell, http, sql: it has {' and '.join(given) or 'none'}")
        return "", None
    shell = schedule.run.shell
    if shell and (shell.script is None) == (shell.command is None):
        written.report("run", "needs either script (text) or command (a list of program and arguments)", "shell")
    return f"run.{given[0]}", _stored(written, "run", _settings(schedule.run), given[0])


def _settings(run: RunModel) -> dict[str, Any]:
    """What the executor needs, without what was left out."""
    if run.shell:
        settings: dict[str, Any] = {"script": run.shell.script, "command": run.shell.command, "env": run.shell.env}
    elif run.http:
        method = run.http.method or ("GET" if run.http.body is None else "POST")
        settings = {"url": run.http.url, "method": method, "headers": run.http.headers, "body": run.http.body}
    elif run.sql:
        settings = {"text": run.sql.text, "dsn_env": run.sql.dsn_env, "parameters": run.sql.parameters}
    else:
        settings = {}
    return {key: value for key, value in settings.items() if value is not None and value != {}}


def _stored(written: _Written, key: str, value: dict[str, Any], *inner: str) -> dict[str, Any]:
    faults = storage_faults(value) if value else []
    for path, message in faults:
        written.report(key, message, *inner, *path, at_key=message.startswith("key "))
    stored: dict[str, Any] = value if faults or not value else storable(value)
    return stored


def _limit(written: _Written) -> str | None:
    key: str | None = written.value("limit")
    if key is not None and (message := written.register.unknown(written.source.shape.model.owner, "limits", key)):
        written.report("limit", message)
    return key


def _retry(written: _Written) -> RetryPolicy:
    part = written.part("retry")
    if part["base"] > part["max"]:
        base, longest = format_duration(part["base"]), format_duration(part["max"])
        written.report("retry", f"base ({base}) is longer than max ({longest}): raise max or lower base")
    return RetryPolicy(
        max_attempts=part["max_attempts"], base=part["base"], max_delay=part["max"], jitter=part["jitter"]
    )


def _catchup(written: _Written) -> Catchup:
    part = written.part("catchup")
    if part["grace"] >= part["max_age"]:
        grace, max_age = format_duration(part["grace"]), format_duration(part["max_age"])
        written.report("catchup", f"max_age ({max_age}) must be longer than grace ({grace}): raise max_age")
    return Catchup(policy=part["policy"], grace=part["grace"], max_age=part["max_age"])


def _renamed_from(written: _Written) -> str | None:
    former = written.schedule.renamed_from
    if former == written.name:
        written.report("renamed_from", "is the schedule's own name: write the former one, or remove the key")
    elif former is not None and (place := written.register.place_of_schedule(former)):
        written.report(
            "renamed_from", f'"{former}" still stands at {place}: rename that schedule instead of adding one'
        )
    return former


@dataclass(slots=True, kw_only=True)
class _Timings:
    """Makes timings; what schedules share (expressions, calendars, checks of keys) is worked out once."""

    register: Register
    today: date
    zones: dict[str, str | None] = field(default_factory=dict)
    calendars: dict[Any, CalendarRule] = field(default_factory=dict)
    checked: dict[tuple[Any, ...], str | None] = field(default_factory=dict)
    shared_days: dict[Timing, date | None] = field(default_factory=dict)

    def timing(self, written: _Written) -> Timing | None:
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

    def _timezone(self, written: _Written) -> str:
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

    def _calendar(self, written: _Written, start: datetime | None) -> CalendarRule | None:
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
        """What ``core.occurrences`` has against the rule; asked once for all schedules that share it."""
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


def _rule(written: _Written, timezone: str) -> tuple[str, Rule] | None:
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


def _bound(written: _Written, key: str, timezone: str) -> datetime | None:
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
    """Only blanks that can be seen are taken together; ``core.cron`` names all others."""
    for blank in _BLANKS:
        expression = expression.replace(blank, " ")
    return " ".join(part for part in expression.split(" ") if part)
