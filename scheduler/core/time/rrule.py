"""RFC 5545 recurrence text, read and checked; ``rrule_times`` computes its times.

One DTSTART in the schedule's local time, one RRULE, any RDATE and EXDATE lines. What the RFC leaves open or allows but
cannot be planned is refused with the spelling to use: times in UTC in another zone, a second RRULE, rules finer than
hourly. Two readings that help: a date alone means midnight in DTSTART and RDATE, the end of the day in UNTIL, and the
whole local day in EXDATE; the first date is the first one the RRULE names, which DTSTART should be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from scheduler.core.models import EPOCH
from scheduler.errors import DefinitionError

MAX_LENGTH = 16_384
MAX_COUNT = 10_000
MAX_INTERVAL = 10_000
FIRST_YEAR, LAST_YEAR = 1900, 2300

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY")

_MOMENT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?")
_MIDNIGHT = EPOCH.replace(tzinfo=None)
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")

_RANGES = {
    "BYMONTH": (1, 12, False),
    "BYWEEKNO": (1, 53, True),
    "BYYEARDAY": (1, 366, True),
    "BYMONTHDAY": (1, 31, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
    "BYSETPOS": (1, 366, True),
}
"""Lowest and highest value of each part, and whether it may count from the end with a minus."""

_NOT_WITH = {
    "BYWEEKNO": ("MONTHLY", "WEEKLY", "DAILY", "HOURLY"),
    "BYYEARDAY": ("MONTHLY", "WEEKLY", "DAILY"),
    "BYMONTHDAY": ("WEEKLY",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A checked recurrence on naive local time. ``by`` holds the numeric parts the text gives, by their RFC names.

    ``weekdays`` pairs a weekday (Monday is 0) with its number in the month or year, 0 for every one. ``until`` is the
    last local time the RRULE may name; ``until_instant`` stands for it, as the last UTC instant of all, when the text
    gives it in UTC and there is no RDATE.
    """

    start: datetime
    frequency: str
    interval: int
    count: int | None
    until: datetime | None
    until_instant: datetime | None
    by: Mapping[str, tuple[int, ...]]
    weekdays: tuple[tuple[int, int], ...]
    week_start: int
    extra: tuple[datetime, ...]
    left_out: frozenset[datetime]
    left_out_days: frozenset[date]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """One date or time as written: naive, with what its spelling said beyond that."""

    at: datetime
    is_utc: bool
    is_day: bool


def parse_recurrence(text: str, zone: ZoneInfo) -> Recurrence:
    """The recurrence that ``text`` describes for a schedule in ``zone``.

    Raises DefinitionError with one sentence that quotes the faulty part and says what to write instead.
    """
    return _Reader(zone).read(text)


class _Reader:
    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone

    def read(self, text: str) -> Recurrence:
        if len(text) > MAX_LENGTH:
            raise DefinitionError(f"rrule has {len(text)} characters, at most {MAX_LENGTH} are allowed; use calendars")
        found: dict[str, list[tuple[dict[str, str], str]]] = {"DTSTART": [], "RRULE": [], "RDATE": [], "EXDATE": []}
        for line in _unfolded(text):
            name, parameters, value = _property(line)
            if name not in found:
                raise DefinitionError(
                    f'rrule: "{name[:24]}" is not supported; write DTSTART, RRULE, RDATE and EXDATE lines'
                )
            found[name].append((parameters, value))
        return self._recurrence(found)

    def _recurrence(self, found: dict[str, list[tuple[dict[str, str], str]]]) -> Recurrence:
        for name, example in (("DTSTART", "DTSTART:20260105T090000"), ("RRULE", "RRULE:FREQ=WEEKLY;BYDAY=MO")):
            if len(found[name]) != 1:
                number = len(found[name]) or "no"
                raise DefinitionError(
                    f'rrule has {number} {name} line{"s" if found[name] else ""}; write one, such as "{example}"'
                )
        start = self._start(*found["DTSTART"][0])
        parts = _parts(found["RRULE"][0][1])
        frequency = _frequency(parts.pop("FREQ", ""))
        until, until_instant = self._until(parts.pop("UNTIL", None))
        interval = _number("INTERVAL", parts.pop("INTERVAL", "1"), MAX_INTERVAL)
        count = _number("COUNT", parts.pop("COUNT"), MAX_COUNT) if "COUNT" in parts else None
        if count is not None and (until or until_instant):
            raise DefinitionError("rrule has both COUNT and UNTIL; write one of them")
        weekdays = _weekdays(parts.pop("BYDAY", ""), frequency, "BYWEEKNO" in parts)
        week_start = _week_start(parts.pop("WKST", "MO"))
        by = {name: _numbers(name, value) for name, value in parts.items()}
        _check_parts(by, frequency, bool(weekdays))
        extra = self._moments("RDATE", found["RDATE"])
        left_out = self._moments("EXDATE", found["EXDATE"])
        if extra and until_instant is not None:
            until, until_instant = until_instant.astimezone(self._zone).replace(tzinfo=None), None
        return Recurrence(
            start=start,
            frequency=frequency,
            interval=interval,
            count=count,
            until=until,
            until_instant=until_instant,
            by=by,
            weekdays=weekdays,
            week_start=week_start,
            extra=tuple(sorted({self._local(moment) for moment in extra})),
            left_out=frozenset(self._local(moment) for moment in left_out if not moment.is_day),
            left_out_days=frozenset(moment.at.date() for moment in left_out if moment.is_day),
        )

    def _start(self, parameters: dict[str, str], value: str) -> datetime:
        moment = self._moment("DTSTART", parameters, value)
        if moment.is_utc and self._zone.key != "UTC":
            raise DefinitionError(
                f'rrule: DTSTART "{value}" is in UTC, the schedule in {self._zone.key}; write its local time without Z'
            )
        return moment.at

    def _until(self, value: str | None) -> tuple[datetime | None, datetime | None]:
        if value is None:
            return None, None
        moment = self._moment("UNTIL", {}, value)
        if moment.is_utc:
            return None, moment.at.replace(tzinfo=UTC)
        return (moment.at.replace(hour=23, minute=59, second=59) if moment.is_day else moment.at), None

    def _moments(self, name: str, lines: Sequence[tuple[dict[str, str], str]]) -> list[_Moment]:
        return [self._moment(name, parameters, item) for parameters, value in lines for item in value.split(",")]

    def _moment(self, name: str, parameters: dict[str, str], value: str) -> _Moment:
        named = parameters.get("TZID", self._zone.key)
        if named != self._zone.key:
            raise DefinitionError(
                f'rrule: {name} has TZID "{named[:64]}", the schedule is in {self._zone.key}; '
                'leave TZID out and set "timezone:"'
            )
        shape = _MOMENT.fullmatch(value.strip())
        try:
            year, month, day, hour, minute, second = (
                (int(part or 0) for part in shape.groups()[:6]) if shape else (0,) * 6
            )
            at = _MIDNIGHT.replace(year=year, month=month, day=day, hour=hour, minute=minute, second=second)
        except ValueError:
            raise DefinitionError(
                f'rrule: {name} "{value.strip()[:32]}" is not a date; write local time as 20260105T090000, or 20260105'
            ) from None
        assert shape is not None
        if name == "UNTIL" and year > LAST_YEAR:
            at = at.replace(year=LAST_YEAR + 1, day=1)
        elif not FIRST_YEAR <= year <= LAST_YEAR:
            raise DefinitionError(
                f'rrule: {name} "{value.strip()}" is outside the years {FIRST_YEAR} to {LAST_YEAR}; '
                "write a year between"
            )
        return _Moment(at=at, is_utc=shape[7] == "Z", is_day=shape[4] is None)

    def _local(self, moment: _Moment) -> datetime:
        if not moment.is_utc:
            return moment.at
        return moment.at.replace(tzinfo=UTC).astimezone(self._zone).replace(tzinfo=None)


def _unfolded(text: str) -> list[str]:
    """Content lines; a line that begins with a blank continues the one before (RFC 5545, 3.1)."""
    joined = re.sub(r"\r?\n[ \t]+(?=\S)", "", text.strip()) if "\n " in text or "\n\t" in text else text.strip()
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _property(line: str) -> tuple[str, dict[str, str], str]:
    head, colon, value = line.partition(":")
    if not colon and re.match(r"(RRULE[ =;]+)?FREQ=", line, re.IGNORECASE):
        return "RRULE", {}, line[line.upper().index("FREQ=") :]
    if not colon:
        raise DefinitionError(f'rrule: the line "{line[:32]}" has no name; write such as "RRULE:FREQ=DAILY"')
    name, *parameters = head.split(";")
    pairs = {
        key.strip().upper(): given.strip().strip('"') for key, _, given in (item.partition("=") for item in parameters)
    }
    unknown = sorted(set(pairs) - {"TZID", "VALUE"})
    if unknown or pairs.get("VALUE", "DATE").upper() not in ("DATE", "DATE-TIME"):
        shown = unknown[0] if unknown else f"VALUE={pairs['VALUE']}"
        raise DefinitionError(
            f'rrule: {name.upper()} has the parameter "{shown[:24]}"; write dates or local times only'
        )
    return name.strip().upper(), pairs, value.strip()


def _parts(value: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for item in value.strip().strip(";").split(";"):
        key, equals, given = (piece.strip().upper() for piece in item.partition("="))
        known = key in _RANGES or key in ("FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "WKST")
        if not equals or not known:
            raise DefinitionError(
                f'rrule: "{item[:32]}" is not a part of an RRULE; write such as FREQ=WEEKLY;BYDAY=MO,FR'
            )
        if key in parts:
            raise DefinitionError(f"rrule: {key} stands twice; write it once, with a list")
        parts[key] = given
    return parts


def _frequency(value: str) -> str:
    if value in ("MINUTELY", "SECONDLY"):
        raise DefinitionError(f'rrule: FREQ={value} is finer than hourly; write "every:" or "cron:" instead')
    if value not in FREQUENCIES:
        raise DefinitionError(f'rrule: FREQ "{value[:24]}" is unknown; write one of {", ".join(FREQUENCIES)}')
    return value


def _number(name: str, value: str, most: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", value) or not 1 <= int(value) <= most:
        raise DefinitionError(f'rrule: {name} "{value[:24]}" is not allowed; write a number from 1 to {most}')
    return int(value)


def _numbers(name: str, value: str) -> tuple[int, ...]:
    low, high, may_count_back = _RANGES[name]
    numbers = []
    for item in value.split(","):
        number = int(item) if re.fullmatch("[+-]?[0-9]{1,4}", item.strip()) else None
        if number is None or not (low <= number <= high or (may_count_back and low <= -number <= high)):
            back = f" or -{high} to -{low}" if may_count_back else ""
            raise DefinitionError(f'rrule: {name} "{item[:24]}" is not allowed; write {low} to {high}{back}')
        numbers.append(number)
    return tuple(sorted(set(numbers)))


def _weekdays(value: str, frequency: str, has_week_numbers: bool) -> tuple[tuple[int, int], ...]:
    found = []
    for item in value.split(",") if value else ():
        shape = _WEEKDAY.fullmatch(item.strip())
        if not shape or (shape[1] and not 1 <= abs(int(shape[1])) <= 53):
            raise DefinitionError(
                f'rrule: BYDAY "{item[:24]}" is not a weekday; write MO, TU, WE, TH, FR, SA, SU, or 1MO, -1FR'
            )
        if shape[1] and (frequency not in ("MONTHLY", "YEARLY") or has_week_numbers):
            raise DefinitionError(
                f'rrule: BYDAY "{item[:24]}" counts weekdays, which FREQ=MONTHLY and YEARLY (without BYWEEKNO) can do; '
                f'write "{shape[2]}"'
            )
        found.append((WEEKDAYS.index(shape[2]), int(shape[1] or 0)))
    return tuple(sorted(set(found)))


def _week_start(value: str) -> int:
    if value not in WEEKDAYS:
        raise DefinitionError(f'rrule: WKST "{value[:24]}" is not a weekday; write MO or SU')
    return WEEKDAYS.index(value)


def _check_parts(by: Mapping[str, tuple[int, ...]], frequency: str, has_weekdays: bool) -> None:
    for name, frequencies in _NOT_WITH.items():
        if name in by and frequency in frequencies:
            raise DefinitionError(
                f"rrule: {name} has no meaning with FREQ={frequency}; leave it out or use FREQ=YEARLY"
            )
    if len(by.get("BYSECOND", ())) > 1:
        raise DefinitionError('rrule: BYSECOND lists several seconds, finer than a minute; write "every:" instead')
    if "BYSETPOS" in by and not has_weekdays and len(by) == 1:
        raise DefinitionError("rrule: BYSETPOS chooses from nothing; write another BY part beside it")
