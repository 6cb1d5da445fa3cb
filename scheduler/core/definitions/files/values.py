"""Single values of a definition file: the types its models are made of, and the sentences for what does not fit.

Each check returns the value or raises ValueError with a sentence. Strings and numbers are never converted silently.
"""

# ruff: noqa: TRY004  pydantic collects ValueError and lets TypeError through

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, WithJsonSchema

from scheduler.core.definitions.files.words import did_you_mean, kind_of, listed, not_text, shown
from scheduler.core.definitions.key_template import template_fault
from scheduler.core.models import (
    PRIORITIES,
    CatchupPolicy,
    FinalFailurePolicy,
    GapRule,
    OverlapPolicy,
    RepeatRule,
    Shift,
)
from scheduler.core.storable import text_fault
from scheduler.core.time.durations import EXAMPLES as DURATIONS
from scheduler.core.time.durations import parse_duration
from scheduler.core.time.moments import EXAMPLES as MOMENTS
from scheduler.core.time.moments import parse_day, parse_moment

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,99}$"
DURATION_PATTERN = r"^([0-9]+(w|d|h|m|s|ms))+$"
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_NAME = re.compile(NAME_PATTERN.replace("$", r"\Z"))
_JOB = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_URL = re.compile(r"https?://[^\s/?#@]+([/?#]\S*)?")
_TEXT_LIMIT = 100_000

Choice = TypeVar("Choice", bound=Enum)


# Checks of single values. Each returns the value or raises ValueError with a sentence.


def _text(value: Any) -> str:
    if isinstance(value, str):
        if fault := text_fault(value):
            raise ValueError(fault)
        if len(value) > _TEXT_LIMIT:
            raise ValueError(f"is longer than {_TEXT_LIMIT:,} characters")
        return value
    raise ValueError(not_text(value))


def _filled_text(value: Any) -> str:
    if not _text(value).strip():
        raise ValueError("is empty: write a text, or leave the key out")
    return str(value)


def _name(value: Any) -> str:
    text = _text(value)
    if not _NAME.fullmatch(text):
        likely = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:100]
        hint = f'; for example "{likely}"' if likely else ""
        raise ValueError(
            f"{shown(text)} is not a name: 1 to 100 of a-z 0-9 . _ -, beginning with a letter or a digit{hint}"
        )
    return text


def _label(value: Any) -> str:
    text = _filled_text(value)
    if len(text) > 100 or not text.isprintable():
        raise ValueError(f"{shown(text)} is too long or has invisible characters: at most 100 printable ones")
    return text


def _duration(value: Any) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit: write {value}s, {value}m or {value}h")
    if not isinstance(value, str):
        raise ValueError(f"{kind_of(value)} is not a duration: write a number with a unit, like {DURATIONS}")
    return parse_duration(value)


def _positive_duration(value: Any) -> timedelta:
    if not (duration := _duration(value)):
        raise ValueError(f"must be longer than zero: write a duration like {DURATIONS}")
    return duration


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
            raise ValueError(f'"{value}" is text: write the number without quotes')
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{shown(value)} is not a whole number: write one from {low:,} to {high:,}")
        if not low <= value <= high:
            raise ValueError(f"{shown(value)} is out of range: write a whole number from {low:,} to {high:,}")
        return value

    return check


def _fraction(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{shown(value)} is not a fraction: write a number from 0 to 1, like 0.2")
    return float(value)


def _choice(kind: type[Choice]) -> Callable[[Any], Choice]:
    options = [str(member.value) for member in kind]

    def check(value: Any) -> Choice:
        if isinstance(value, str) and value in options:
            return kind(value)
        raise ValueError(f"{shown(value)} is not one of {listed(options)}{did_you_mean(value, options)}")

    return check


def _weekday(value: Any) -> int:
    short = value.lower()[:3] if isinstance(value, str) else ""
    if short in WEEKDAYS and value.lower() in (short, _DAY_NAMES[short]):
        return WEEKDAYS.index(short)
    raise ValueError(f"{shown(value)} is not a weekday: write one of {listed(WEEKDAYS)}")


_DAY_NAMES = {name[:3]: name for name in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")}


def _job(value: Any) -> str:
    text = _filled_text(value)
    if text.startswith("run."):
        raise ValueError(f"{shown(text)} is built in: write `run: {{shell: ...}}` instead of `job:`")
    if not _JOB.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a job type: letters, digits and _ . : -, like ingest.daily")
    return text


def _template(value: Any) -> str:
    text = _filled_text(value)
    if fault := template_fault(text):
        raise ValueError(fault)
    return text


def _moment(value: Any) -> date:
    if isinstance(value, str):
        return parse_moment(value)
    raise ValueError(f"{shown(value)} is not a moment: write {MOMENTS}")


def _day(value: Any) -> date:
    if isinstance(value, str):
        return parse_day(value)
    raise ValueError(f"{shown(value)} is not a date: write 2026-12-31")


def one_or_more(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _version(value: Any) -> int:
    if value == 1 and isinstance(value, int) and not isinstance(value, bool):
        return 1
    raise ValueError(f"{shown(value)} is not a version this program reads: write version: 1")


def _environment_name(value: Any) -> str:
    text = _text(value)
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not the name of an environment variable: letters, digits and _")
    return text


def _value(value: Any) -> Any:
    """A text of ``run``, or ``{from_env: NAME}``, which the worker replaces."""
    if isinstance(value, dict):
        if set(value) != {"from_env"}:
            raise ValueError("a mapping here can only be {from_env: NAME}")
        return {"from_env": _environment_name(value["from_env"])}
    return _text(value)


def _header_name(value: Any) -> str:
    text = _text(value)
    if not _HEADER.fullmatch(text):
        raise ValueError(f"{shown(text)} is not the name of an HTTP header")
    return text


def _header(value: Any) -> Any:
    checked = _value(value)
    if isinstance(checked, str) and not (checked.isprintable() and checked == checked.strip()):
        raise ValueError("has blanks at its ends, or characters that a header cannot carry")
    return checked


def _url(value: Any) -> Any:
    checked = _value(value)
    if isinstance(checked, str) and not _URL.fullmatch(checked):
        if "@" in checked.split("?")[0]:
            raise ValueError("has a user or password in the address: send them as a header with {from_env: NAME}")
        raise ValueError(f"{shown(checked)} is not an address: write http:// or https:// and a host")
    return checked


def _method(value: Any) -> str:
    if isinstance(value, str) and value.upper() in _METHODS:
        return value.upper()
    raise ValueError(f"{shown(value)} is not one of {listed(_METHODS)}")


def as_shell(value: Any) -> Any:
    if isinstance(value, str):
        return {"script": value}
    return {"command": value} if isinstance(value, list) else value


def as_http(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) or (isinstance(value, dict) and "from_env" in value) else value


def as_sql(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


def as_union(value: Any) -> Any:
    return {"calendars": value} if isinstance(value, list) else value


_MOMENT_SCHEMA: dict[str, Any] = {
    "type": "string",
    "examples": ["2026-01-31", "2026-01-31T08:30", "2026-01-31T08:30:00Z"],
}
_ENVIRONMENT_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^{_VARIABLE.pattern}$"}
_VALUE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"from_env": _ENVIRONMENT_SCHEMA},
            "required": ["from_env"],
            "additionalProperties": False,
        },
    ]
}


def _choices(kind: type[Enum]) -> WithJsonSchema:
    return WithJsonSchema({"enum": [member.value for member in kind]})


def _one_or_more_schema(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


def _whole_schema(low: int, high: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": low, "maximum": high})


Gap = Annotated[GapRule, BeforeValidator(_choice(GapRule)), _choices(GapRule)]
Repeat = Annotated[RepeatRule, BeforeValidator(_choice(RepeatRule)), _choices(RepeatRule)]
ShiftChoice = Annotated[Shift, BeforeValidator(_choice(Shift)), _choices(Shift)]
CatchupChoice = Annotated[CatchupPolicy, BeforeValidator(_choice(CatchupPolicy)), _choices(CatchupPolicy)]
OverlapChoice = Annotated[OverlapPolicy, BeforeValidator(_choice(OverlapPolicy)), _choices(OverlapPolicy)]
FailureChoice = Annotated[
    FinalFailurePolicy, BeforeValidator(_choice(FinalFailurePolicy)), _choices(FinalFailurePolicy)
]
Attempts = Annotated[int, BeforeValidator(_whole(1, 1000)), _whole_schema(1, 1000)]
Priority = Annotated[int, BeforeValidator(_whole(*PRIORITIES)), _whole_schema(*PRIORITIES)]
Slots = Annotated[int, BeforeValidator(_whole(1, 100_000)), _whole_schema(1, 100_000)]

Text = Annotated[str, BeforeValidator(_text)]
FilledText = Annotated[str, BeforeValidator(_filled_text), WithJsonSchema({"type": "string", "minLength": 1})]
Name = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 100})]
_DURATION_SCHEMA = WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["90s", "15m", "6h"]})
Duration = Annotated[timedelta, BeforeValidator(_duration), _DURATION_SCHEMA]
PositiveDuration = Annotated[timedelta, BeforeValidator(_positive_duration), _DURATION_SCHEMA]
Fraction = Annotated[float, BeforeValidator(_fraction), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
Job = Annotated[str, BeforeValidator(_job), WithJsonSchema({"type": "string", "pattern": f"^{_JOB.pattern}$"})]
Template = Annotated[str, BeforeValidator(_template)]
Moment = Annotated[Any, BeforeValidator(_moment), WithJsonSchema(_MOMENT_SCHEMA)]
Day = Annotated[Any, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
Weekday = Annotated[int, BeforeValidator(_weekday)]
Names = Annotated[list[Name], BeforeValidator(one_or_more), _one_or_more_schema({"type": "string"})]
Weekdays = Annotated[list[Weekday], BeforeValidator(one_or_more), _one_or_more_schema({"enum": list(WEEKDAYS)})]
Moments = Annotated[list[Moment], BeforeValidator(one_or_more), _one_or_more_schema(_MOMENT_SCHEMA)]
Value = Annotated[Any, BeforeValidator(_value), WithJsonSchema(_VALUE_SCHEMA)]
VariableName = Annotated[str, BeforeValidator(_environment_name), WithJsonSchema(_ENVIRONMENT_SCHEMA)]
HeaderName = Annotated[str, BeforeValidator(_header_name)]
HeaderValue = Annotated[Any, BeforeValidator(_header), WithJsonSchema(_VALUE_SCHEMA)]
Url = Annotated[Any, BeforeValidator(_url), WithJsonSchema(_VALUE_SCHEMA)]
Method = Annotated[str, BeforeValidator(_method), WithJsonSchema({"enum": list(_METHODS)})]
Version = Annotated[int, BeforeValidator(_version), WithJsonSchema({"const": 1})]
