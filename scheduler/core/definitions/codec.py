"""Definitions as JSON and back, exactly: the form in which a revision is stored, and what its hash is taken of.

Format 1: durations are ISO 8601 seconds (``PT300S``, which PostgreSQL reads as elapsed time), instants RFC 3339 in
UTC, local times without an offset, days ``2026-12-24``. Every field is written, defaults included, so that a new
default changes no stored revision. ``file`` and ``renamed_from`` are left out: where a definition stands, and what it
was called, is not what it says. A reader refuses a format it does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

from scheduler.core.models import (
    At,
    CalendarRule,
    Catchup,
    CatchupPolicy,
    Cron,
    Definition,
    DstRule,
    Every,
    ExcludedDays,
    FinalFailurePolicy,
    GapRule,
    OverlapPolicy,
    RepeatRule,
    RetryPolicy,
    Rrule,
    Rule,
    Shift,
    Timing,
)
from scheduler.core.storable import storable
from scheduler.core.time.moments import instant_text
from scheduler.errors import SchedulerError

FORMAT = 1

_SECONDS = re.compile(r"PT(\d+)(?:\.(\d{1,6}))?S", re.ASCII)


def definition_to_json(definition: Definition) -> dict[str, Any]:
    """``definition`` as a JSON object; the same definition always gives the same object."""
    return {
        "format": FORMAT,
        "name": definition.name,
        "owner": definition.owner,
        "description": definition.description,
        "timing": timing_to_json(definition.timing),
        "job": definition.job_type,
        "run": None if definition.run is None else storable(dict(definition.run)),
        "payload": storable(dict(definition.payload)),
        "idempotency_key": definition.idempotency_key,
        "queue": definition.queue,
        "priority": definition.priority,
        "limit": definition.limit,
        "timeout": _optional_duration_text(definition.timeout),
        "retry": {
            "max_attempts": definition.retry.max_attempts,
            "base": duration_text(definition.retry.base),
            "max": duration_text(definition.retry.max_delay),
            "jitter": float(definition.retry.jitter),
        },
        "catchup": {
            "policy": definition.catchup.policy.value,
            "grace": duration_text(definition.catchup.grace),
            "max_age": duration_text(definition.catchup.max_age),
        },
        "overlap": definition.overlap.value,
        "finish_by": _optional_duration_text(definition.finish_by),
        "on_final_failure": definition.on_final_failure.value,
        "tags": list(definition.tags),
    }


def definition_from_json(value: Mapping[str, Any]) -> Definition:
    """The definition that ``definition_to_json`` wrote, without ``file`` and ``renamed_from``.

    Raises SchedulerError for a format this version does not know: only newer versions write those.
    """
    if value.get("format") != FORMAT:
        raise SchedulerError(
            f"a stored definition has format {value.get('format')!r}, and this version reads {FORMAT}: upgrade sched"
        )
    return Definition(
        name=value["name"],
        owner=value["owner"],
        description=value["description"],
        timing=timing_from_json(value["timing"]),
        job_type=value["job"],
        run=value["run"],
        payload=value["payload"],
        idempotency_key=value["idempotency_key"],
        queue=value["queue"],
        priority=value["priority"],
        limit=value["limit"],
        timeout=_optional_duration(value["timeout"]),
        retry=RetryPolicy(
            max_attempts=value["retry"]["max_attempts"],
            base=_duration(value["retry"]["base"]),
            max_delay=_duration(value["retry"]["max"]),
            jitter=float(value["retry"]["jitter"]),
        ),
        catchup=Catchup(
            policy=CatchupPolicy(value["catchup"]["policy"]),
            grace=_duration(value["catchup"]["grace"]),
            max_age=_duration(value["catchup"]["max_age"]),
        ),
        overlap=OverlapPolicy(value["overlap"]),
        finish_by=_optional_duration(value["finish_by"]),
        on_final_failure=FinalFailurePolicy(value["on_final_failure"]),
        tags=tuple(value["tags"]),
    )


def definition_hash(definition: Definition) -> str:
    """SHA-256, in hex, of the definition's identity: two definitions have the same exactly if they say the same."""
    return hashlib.sha256(canonical_text(identity(definition)).encode()).hexdigest()


def identity(definition: Definition) -> dict[str, Any]:
    """The JSON without the version of the holidays package: the days decide, whoever they came from."""
    found = definition_to_json(definition)
    if found["timing"]["calendar"] is not None:
        del found["timing"]["calendar"]["source"]
    return found


def canonical_text(value: Any) -> str:
    """JSON text with sorted keys and no blanks; unlike ``==`` it tells ``true``, ``1`` and ``1.0`` apart."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def timing_to_json(timing: Timing) -> dict[str, Any]:
    """A timing as a JSON object, with its name, which seeds ``H`` and jitter."""
    return {
        "name": timing.name,
        "rule": _rule_to_json(timing.rule),
        "timezone": timing.timezone,
        "dst": {"gap": timing.dst.gap.value, "overlap": timing.dst.overlap.value},
        "start": None if timing.start is None else instant_text(timing.start),
        "end": None if timing.end is None else instant_text(timing.end),
        "calendar": None if timing.calendar is None else _calendar_to_json(timing.calendar),
        "jitter": duration_text(timing.jitter),
    }


def timing_from_json(value: Mapping[str, Any]) -> Timing:
    """The timing that ``timing_to_json`` wrote."""
    return Timing(
        name=value["name"],
        rule=_rule_from_json(value["rule"]),
        timezone=value["timezone"],
        dst=DstRule(gap=GapRule(value["dst"]["gap"]), overlap=RepeatRule(value["dst"]["overlap"])),
        start=None if value["start"] is None else _moment(value["start"]),
        end=None if value["end"] is None else _moment(value["end"]),
        calendar=None if value["calendar"] is None else _calendar_from_json(value["calendar"]),
        jitter=_duration(value["jitter"]),
    )


def duration_text(duration: timedelta) -> str:
    """ISO 8601 in seconds, exact: ``PT300S``, ``PT0.25S``."""
    seconds, microseconds = divmod(duration // timedelta(microseconds=1), 1_000_000)
    fraction = f".{microseconds:06d}".rstrip("0") if microseconds else ""
    return f"PT{seconds}{fraction}S"


def _rule_to_json(rule: Rule) -> dict[str, Any]:
    match rule:
        case Cron():
            return {"cron": rule.expression}
        case Every():
            return {"every": duration_text(rule.interval), "anchor": instant_text(rule.anchor)}
        case Rrule():
            return {"rrule": rule.text}
        case At():
            return {"at": [_moment_text(moment) for moment in rule.moments]}


def _rule_from_json(value: Mapping[str, Any]) -> Rule:
    match value:
        case {"cron": expression}:
            return Cron(expression=expression)
        case {"every": interval, "anchor": anchor}:
            return Every(interval=_duration(interval), anchor=_moment(anchor))
        case {"rrule": text}:
            return Rrule(text=text)
        case {"at": moments}:
            return At(moments=tuple(_moment(moment) for moment in moments))
    raise SchedulerError(f"a stored definition has a rule this version does not know: {sorted(value)}")


def _calendar_to_json(calendar: CalendarRule) -> dict[str, Any]:
    return {
        "excluded": [
            {
                "name": days.name,
                "dates": [day.isoformat() for day in sorted(days.dates)],
                "weekdays": sorted(days.weekdays),
            }
            for days in calendar.excluded
        ],
        "shift": calendar.shift.value,
        "known_until": None if calendar.known_until is None else calendar.known_until.isoformat(),
        "source": calendar.source,
    }


def _calendar_from_json(value: Mapping[str, Any]) -> CalendarRule:
    return CalendarRule(
        excluded=tuple(
            ExcludedDays(
                name=days["name"],
                dates=frozenset(date.fromisoformat(day) for day in days["dates"]),
                weekdays=frozenset(days["weekdays"]),
            )
            for days in value["excluded"]
        ),
        shift=Shift(value["shift"]),
        known_until=None if value["known_until"] is None else date.fromisoformat(value["known_until"]),
        source=value["source"],
    )


def _duration(text: str) -> timedelta:
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise SchedulerError(f"a stored definition has a duration this version does not read: {text!r}")
    return timedelta(seconds=int(match[1]), microseconds=int((match[2] or "0").ljust(6, "0")))


def _optional_duration_text(duration: timedelta | None) -> str | None:
    return None if duration is None else duration_text(duration)


def _optional_duration(text: str | None) -> timedelta | None:
    return None if text is None else _duration(text)


def _moment_text(moment: datetime) -> str:
    return moment.isoformat() if moment.tzinfo is None else instant_text(moment)


def _moment(text: str) -> datetime:
    """An instant in UTC, or a local time if there is no offset."""
    return datetime.fromisoformat(text)
