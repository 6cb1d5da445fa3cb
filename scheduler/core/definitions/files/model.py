"""The models of a definition file: which keys with which types, and the JSON Schema for editors made from them.

``shape`` validates with them, ``build`` turns them into definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema

from scheduler.core.definitions.files import values
from scheduler.core.definitions.files.values import (
    Attempts,
    CatchupChoice,
    Day,
    Duration,
    FailureChoice,
    FilledText,
    Fraction,
    Gap,
    HeaderName,
    HeaderValue,
    Job,
    Label,
    Method,
    Moment,
    Name,
    OverlapChoice,
    PositiveDuration,
    Priority,
    Repeat,
    ShiftChoice,
    Slots,
    Template,
    Text,
    Url,
    Value,
    VariableName,
    Version,
)
from scheduler.core.models import CatchupPolicy, FinalFailurePolicy, GapRule, OverlapPolicy, RepeatRule, Shift
from scheduler.core.time.durations import format_duration


class Model(BaseModel):
    """A mapping of a definition file: no unknown keys, no conversions."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DstModel(Model):
    gap: Gap = Field(default=GapRule.RUN_AFTER, description="a fixed local time that the clock skips")
    overlap: Repeat = Field(default=RepeatRule.FIRST, description="a fixed local time that happens twice")


class ScheduleCalendarModel(Model):
    except_: values.Names = Field(
        alias="except", min_length=1, description="the calendars (one or a list) whose days are left out"
    )
    shift: ShiftChoice = Field(default=Shift.SKIP, description="leave the date out, or move it to a day that is not")


class RetryModel(Model):
    max_attempts: Attempts = Field(default=5, description="tries in all, the first included")
    base: PositiveDuration = Field(
        default=timedelta(seconds=10), description="delay before the second attempt; doubles"
    )
    max: PositiveDuration = Field(default=timedelta(hours=1), description="the longest delay")
    jitter: Fraction = Field(default=0.2, description="share of the delay that is random, 0 to 1")


class CatchupModel(Model):
    policy: CatchupChoice = Field(default=CatchupPolicy.LATEST, description="what becomes of dates found late")
    grace: PositiveDuration = Field(
        default=timedelta(minutes=2), description="a date is late when due longer ago than this"
    )
    max_age: PositiveDuration = Field(
        default=timedelta(days=7), description="older dates are missed whatever the policy"
    )


class CommonModel(Model):
    """The fields that ``defaults`` and a schedule share."""

    timezone: FilledText | None = Field(default=None, description="IANA name, like Europe/Berlin")
    start: Moment | None = Field(default=None, description="first moment, inclusive; gaps are counted from here")
    end: Moment | None = Field(default=None, description="first moment that does not fire any more")
    dst: DstModel = Field(default=DstModel(), description="fixed local times when the clock changes")
    calendar: ScheduleCalendarModel | None = Field(default=None, description="days on which the schedule does not fire")
    jitter: Duration = Field(default=timedelta(0), description="spreads due times, the same for a date every time")
    idempotency_key: Template = Field(
        default="{schedule}:{logical_date}",
        description="placeholders: {schedule}, {logical_date}, {local_date}, {interval_start}",
    )
    queue: Name = Field(default="default", description="queue that workers listen on")
    priority: Priority = Field(default=100, description="smaller runs first")
    limit: Name | None = Field(default=None, description="a key of limits: jobs with this key share its slots")
    timeout: PositiveDuration | None = Field(default=None, description="how long one attempt may take")
    retry: RetryModel = Field(default=RetryModel(), description="attempts and the delays between them")
    catchup: CatchupModel = Field(default=CatchupModel(), description="what becomes of dates that are found late")
    overlap: OverlapChoice = Field(default=OverlapPolicy.QUEUE, description="when an earlier job is unfinished")
    finish_by: PositiveDuration | None = Field(
        default=None, description="overdue when not finished this long after due"
    )
    on_final_failure: FailureChoice = Field(
        default=FinalFailurePolicy.CONTINUE, description="pause: a dead job pauses its schedule"
    )
    tags: Annotated[list[Label], Field(max_length=50)] = Field(default=[], description="words to select schedules by")


class DefaultsModel(CommonModel):
    """Values for every schedule of the file that does not set its own."""


class ShellModel(Model):
    script: FilledText | None = Field(default=None, description="a script, run by the shell")
    command: Annotated[list[Value], Field(min_length=1)] | None = Field(
        default=None, description="program and arguments"
    )
    env: dict[VariableName, Value] = Field(default={}, description="environment variables")


class HttpModel(Model):
    url: Url = Field(description="http or https")
    method: Method | None = Field(default=None, description="POST with a body, else GET")
    headers: dict[HeaderName, HeaderValue] = Field(default={}, description="header names and values")
    body: Any = Field(default=None, description="text is sent as it is, anything else as JSON")


class SqlModel(Model):
    text: FilledText = Field(description="one or more statements, with bound parameters")
    dsn_env: VariableName | None = Field(
        default=None, description="environment variable that holds the connection string"
    )
    parameters: dict[Name, Any] = Field(default={}, description="values for %(name)s in the text")


class RunModel(Model):
    shell: Annotated[ShellModel, BeforeValidator(values.as_shell)] | None = Field(
        default=None, description="script or command"
    )
    http: Annotated[HttpModel, BeforeValidator(values.as_http)] | None = Field(
        default=None, description="address or request"
    )
    sql: Annotated[SqlModel, BeforeValidator(values.as_sql)] | None = Field(default=None, description="statements")


class ScheduleModel(CommonModel):
    """One schedule: exactly one of cron, every, rrule, at; exactly one of job, run."""

    description: Text = Field(default="", description="what it does, for people")
    cron: FilledText | None = Field(default=None, description="five fields: minute hour day month weekday")
    every: PositiveDuration | None = Field(default=None, description="elapsed time between dates")
    anchor: Moment | None = Field(
        default=None, description="an instant that `every` counts from; default 1970-01-01T00:00Z"
    )
    rrule: FilledText | None = Field(default=None, description="RFC 5545 lines: DTSTART, RRULE, RDATE, EXDATE")
    at: Annotated[values.Moments, Field(min_length=1, max_length=10_000)] | None = Field(
        default=None, description="single moments"
    )
    job: Job | None = Field(default=None, description="a registered handler")
    run: RunModel | None = Field(default=None, description="a shell command, an HTTP request or SQL")
    payload: dict[str, Any] = Field(default={}, description="JSON that the job receives")
    renamed_from: Name | None = Field(default=None, description="the former name, only when renaming")


class CalendarModel(Model):
    """Days that are left out; several keys together mean their union."""

    holidays: FilledText | None = Field(default=None, description="country or country-region, like DE or DE-BE")
    dates: list[Day] = Field(default=[], description="single days")
    weekdays: values.Weekdays = Field(default=[], description="days of the week")
    calendars: list[Name] = Field(default=[], description="other calendars of the owner")


class LimitModel(Model):
    concurrency: Slots = Field(description="jobs with this key that run at once, in all workers")


class FileModel(Model):
    """A schedules file."""

    version: Version = Field(description="always 1")
    owner: Name = Field(
        default="default", description="who owns the schedules; apply works on one owner's files together"
    )
    defaults: DefaultsModel = Field(default=DefaultsModel(), description="values for all schedules of this file")
    calendars: dict[Name, Annotated[CalendarModel, BeforeValidator(values.as_union)]] = Field(
        default={}, description="named days, shared by all files of the owner"
    )
    limits: dict[Name, LimitModel] = Field(default={}, description="named slots, shared by all files of the owner")
    schedules: dict[Name, ScheduleModel] = Field(default={}, description="schedules by name")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a definition file, for editors; ``scheduler/schedule.schema.json`` holds the same."""
    schema = FileModel.model_json_schema(by_alias=True, schema_generator=_SchemaGenerator)
    definitions = schema["$defs"]
    for name, shorthand in _SHORTHANDS.items():
        definitions[name] = {"anyOf": [shorthand, definitions[name]]}
    definitions["ScheduleModel"]["allOf"] = [
        {"oneOf": [{"required": [key]} for key in keys]} for keys in (("cron", "every", "rrule", "at"), ("job", "run"))
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "sched definition file",
        "description": "Schedules, and the calendars and limits they share. Durations: 90s, 15m, 6h, 7d.",
    }


class _SchemaGenerator(GenerateJsonSchema):
    """Defaults as they are written in files, and no titles that only repeat the key."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, BaseModel):
            return {name: self.encode_default(getattr(dft, name)) for name in type(dft).model_fields}
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


_SHORTHANDS: Mapping[str, dict[str, Any]] = {
    "ShellModel": {"type": ["string", "array"], "description": "a script, or a program and its arguments"},
    "HttpModel": {"type": "string", "description": "an address"},
    "SqlModel": {"type": "string", "description": "statements"},
    "CalendarModel": {"type": "array", "items": {"type": "string"}, "description": "a union of other calendars"},
}
