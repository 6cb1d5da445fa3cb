"""Models to definitions: defaults, moments, calendars, and every check that takes more than one field or file.

Pure: ``services.definitions`` reads the files. All problems are collected; nothing here stops at the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from scheduler.core.definitions.files.model import Model, RunModel
from scheduler.core.definitions.files.register import Register, Source
from scheduler.core.definitions.files.timings import Timings
from scheduler.core.definitions.files.written import Written
from scheduler.core.models import (
    Catchup,
    Definition,
    DefinitionSet,
    Every,
    RetryPolicy,
    Timing,
)
from scheduler.core.storable import storable, storage_faults
from scheduler.core.time.durations import format_duration
from scheduler.errors import Problem


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
    timings = Timings(register=register, today=today)
    definitions = [definition for source in sources for definition in _definitions(source, register, timings)]
    definition_set = DefinitionSet(
        schedules={definition.name: definition for definition in definitions},
        limits=register.limits,
        owners=frozenset(source.shape.model.owner for source in sources),
    )
    return Build(definitions=definition_set, problems=tuple(dict.fromkeys(register.problems)))


def _definitions(source: Source, register: Register, timings: Timings) -> Iterator[Definition]:
    pruned: dict[str, set[str]] = {}
    for path in source.shape.pruned:
        if path[0] == "schedules" and len(path) == 3:
            pruned.setdefault(str(path[1]), set()).add(str(path[2]))
    defaults = source.shape.model.defaults
    default_parts = {key: _fields(getattr(defaults, key)) for key in ("dst", "retry", "catchup")}
    for name, schedule in source.shape.model.schedules.items():
        if register.is_first(source.document, name):
            fields: dict[str, Any] = source.document.value["schedules"][name]
            written = Written(
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


def _fields(model: Model) -> dict[str, Any]:
    return {name: getattr(model, name) for name in type(model).model_fields}


def _definition(written: Written, timings: Timings) -> Definition | None:
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


def _work(written: Written) -> tuple[str, Mapping[str, Any] | None]:
    """The job type, and for a built-in one its kind and settings: ``{"shell": {...}}``."""
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
    return f"run.{given[0]}", {given[0]: _stored(written, "run", _settings(schedule.run), given[0])}


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


def _stored(written: Written, key: str, value: dict[str, Any], *inner: str) -> dict[str, Any]:
    faults = storage_faults(value) if value else []
    for path, message in faults:
        written.report(key, message, *inner, *path, at_key=message.startswith("key "))
    stored: dict[str, Any] = value if faults or not value else storable(value)
    return stored


def _limit(written: Written) -> str | None:
    key: str | None = written.value("limit")
    if key is not None and (message := written.register.unknown(written.source.shape.model.owner, "limits", key)):
        written.report("limit", message)
    return key


def _retry(written: Written) -> RetryPolicy:
    part = written.part("retry")
    if part["base"] > part["max"]:
        base, longest = format_duration(part["base"]), format_duration(part["max"])
        written.report("retry", f"base ({base}) is longer than max ({longest}): raise max or lower base")
    return RetryPolicy(
        max_attempts=part["max_attempts"], base=part["base"], max_delay=part["max"], jitter=part["jitter"]
    )


def _catchup(written: Written) -> Catchup:
    part = written.part("catchup")
    if part["grace"] >= part["max_age"]:
        grace, max_age = format_duration(part["grace"]), format_duration(part["max_age"])
        written.report("catchup", f"max_age ({max_age}) must be longer than grace ({grace}): raise max_age")
    return Catchup(policy=part["policy"], grace=part["grace"], max_age=part["max_age"])


def _renamed_from(written: Written) -> str | None:
    former = written.schedule.renamed_from
    if former == written.name:
        written.report("renamed_from", "is the schedule's own name: write the former one, or remove the key")
    elif former is not None and (place := written.register.place_of_schedule(former)):
        written.report(
            "renamed_from", f'"{former}" still stands at {place}: rename that schedule instead of adding one'
        )
    return former
