"""Our cron dialect: five fields, what each may say, and what is refused with the spelling to use instead.

Minute, hour, day of month, month, day of week. Each is a list of values, ranges ``a-b``, steps ``*/n`` and ``a-b/n``,
with names for months and weekdays; ``7`` is Sunday as well; ``a-a`` is the one value. ``L`` is the last day of the
month, ``5L`` its last Friday, ``1#2`` its second Monday; ``?`` is ``*`` in a day field. ``H`` is a value spread by the
schedule's name: the same on every machine and in every release. ``@daily`` and the like are short forms.

Two choices that other tools make differently: the day fields are joined by OR only when neither begins with ``*``,
and a rule follows elapsed time (is *wild*) when its minute or hour field begins with ``*``; both as in Debian's cron.
croniter and cronsim check this module in the tests; croniter also gives lint a second reading, so that people who come
from tools built on it are told where it differs. They decide nothing here: docs/decisions/0008.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

from scheduler.errors import DefinitionError

MAX_LENGTH = 256

_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_SHORT_FORMS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFields:
    """What a cron expression says, as sets. Equal fields mean equal firings, however they were written.

    ``days`` and ``weekdays`` are bit masks (bit 1 is the 1st, bit 0 is Sunday). ``days_open`` and ``weekdays_open``
    hold when the text begins with ``*`` or is ``?``; if neither holds, a day matches when either field does.
    """

    expression: str = field(compare=False)
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: int
    last_day: bool
    months: tuple[int, ...]
    weekdays: int
    nth_weekdays: tuple[tuple[int, int], ...]
    last_weekdays: int
    days_open: bool
    weekdays_open: bool
    is_wild: bool

    @property
    def joins_days_with_or(self) -> bool:
        """Whether both day fields are restricted, so that a day of either fires."""
        return not self.days_open and not self.weekdays_open


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    title: str
    low: int
    high: int
    unit: str
    names: Mapping[str, int] = field(default_factory=dict)
    spread_high: int | None = None


_MINUTE = _Field(title="minute", low=0, high=59, unit="minutes")
_HOUR = _Field(title="hour", low=0, high=23, unit="hours")
_DAY = _Field(title="day-of-month", low=1, high=31, unit="days", spread_high=28)
_MONTH = _Field(
    title="month", low=1, high=12, unit="months", names={name: n for n, name in enumerate(_MONTH_NAMES, start=1)}
)
_WEEKDAY = _Field(
    title="day-of-week",
    low=0,
    high=7,
    unit="days",
    names={name: n for n, name in enumerate(_DAY_NAMES)},
    spread_high=6,
)
_FIELDS = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)

_SPREAD_ITEM = re.compile(r"H(?:\(([0-9]{1,3})-([0-9]{1,3})\))?(?:/([0-9]+))?")
_PLAIN_ITEM = re.compile(r"(?:(\*)|([0-9]+|[A-Z]+)(?:-([0-9]+|[A-Z]+))?)(?:/([0-9]+))?")
_LAST_WEEKDAY = re.compile(r"([0-9]+|[A-Z]{3})L")
_NTH_WEEKDAY = re.compile(r"([0-9]+|[A-Z]{3})#([0-9]+)")
_NEAREST_WEEKDAY = re.compile(r"(?:[0-9]+|L)W|W")


@lru_cache(maxsize=16384)
def parse_cron(expression: str, name: str) -> CronFields:
    """The field sets of ``expression``; ``name`` seeds ``H``.

    Raises DefinitionError with one sentence that quotes the faulty part and says what to write instead.
    """
    text = normalise(expression)
    return _Parser(expression=text, name=name).parse()


def normalise(expression: str) -> str:
    """The expression with single blanks, short forms written out.

    Raises DefinitionError for what is not five fields: too long, invisible characters, a zone or seconds in it.
    """
    if len(expression) > MAX_LENGTH:
        raise DefinitionError(
            f'cron "{expression[:24]}..." has {len(expression)} characters, at most {MAX_LENGTH} are allowed; '
            "use ranges and steps, or several schedules"
        )
    _refuse_odd_characters(expression)
    words = expression.split()
    if not words:
        raise DefinitionError('cron is empty; write five fields such as "0 2 * * *"')
    if re.match(r"(CRON_)?TZ=", words[0], re.IGNORECASE):
        zone_text = words[0].partition("=")[2] or "Europe/Berlin"
        raise DefinitionError(
            f'cron "{" ".join(words)}" carries a zone; write "timezone: {zone_text}" beside it '
            "and only the five fields here"
        )
    if words[0].startswith("@"):
        return _short_form(words)
    if len(words) != 5:
        _refuse_count(words)
    return " ".join(words)


def _refuse_odd_characters(expression: str) -> None:
    for position, character in enumerate(expression, start=1):
        if not (" " <= character <= "~" or character in "\t\n\r"):
            label = unicodedata.name(character, "a control character")
            raise DefinitionError(
                f"cron has the character U+{ord(character):04X} ({label}) at position {position}; "
                "use plain ASCII and ordinary spaces"
            )


def _short_form(words: list[str]) -> str:
    word = words[0].lower()
    if word in _SHORT_FORMS and len(words) == 1:
        return _SHORT_FORMS[word]
    if word == "@every":
        raise DefinitionError(
            f'cron "{" ".join(words)}" is not cron; write "every: {" ".join(words[1:]) or "5m"}" instead of "cron:"'
        )
    if word == "@reboot":
        raise DefinitionError(
            'cron "@reboot" names no time; run the command from the service that starts the machine, or use "at:"'
        )
    known = ", ".join(_SHORT_FORMS)
    raise DefinitionError(f'cron "{" ".join(words)}" is not a known short form; write one of {known}, or five fields')


def _refuse_count(words: list[str]) -> NoReturn:
    text = " ".join(words)
    asked = "write five: minute hour day-of-month month day-of-week"
    if len(words) == 6:
        raise DefinitionError(
            f'cron "{text}" has 6 fields; seconds first is the form of Quartz and Spring, seconds last that of '
            f'croniter: {asked} (leave out the seconds; "every: 10s" runs more often than once a minute)'
        )
    if len(words) == 7:
        raise DefinitionError(
            f'cron "{text}" has 7 fields; seconds first and year last is the form of Quartz (Spring has no year): '
            f'{asked} (leave out seconds and year; use "start:" and "end:" for years)'
        )
    raise DefinitionError(f'cron "{text}" has {len(words)} field{"s" if len(words) > 1 else ""}; {asked}')


@dataclass(kw_only=True)
class _Parser:
    """One pass over one expression; collects what the two day fields say beyond plain values."""

    expression: str
    name: str
    last_day: bool = False
    last_weekdays: int = 0
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()

    def parse(self) -> CronFields:
        texts = self.expression.split(" ")
        masks = [self._field_mask(spec, text.upper()) for spec, text in zip(_FIELDS, texts, strict=True)]
        minute, hour, day, month, weekday = masks
        return CronFields(
            expression=self.expression,
            minutes=_members(minute),
            hours=_members(hour),
            days=day,
            last_day=self.last_day,
            months=_members(month),
            weekdays=(weekday | weekday >> 7) & 0x7F,
            nth_weekdays=tuple(sorted(self.nth_weekdays)),
            last_weekdays=self.last_weekdays,
            days_open=texts[2][0] in "*?",
            weekdays_open=texts[4][0] in "*?",
            is_wild=texts[0][0] == "*" or texts[1][0] == "*",
        )

    def _field_mask(self, spec: _Field, text: str) -> int:
        if text == "?":
            if spec in (_DAY, _WEEKDAY):
                return _mask(spec.low, spec.high, 1)
            self._refuse(spec, text, '"?" stands only in the two day fields', '"*"')
        mask = 0
        for item in text.split(","):
            mask |= self._item_mask(spec, item)
        return mask

    def _item_mask(self, spec: _Field, item: str) -> int:
        self._refuse_foreign(spec, item)
        if self._takes_day_form(spec, item):
            return 0
        spread = _SPREAD_ITEM.fullmatch(item)
        if spread:
            return self._spread_mask(spec, item, *spread.groups())
        plain = _PLAIN_ITEM.fullmatch(item)
        if not plain:
            self._refuse(spec, item, "cannot be read", f"values, ranges and steps such as {_example(spec)}")
        star, first, last, step_text = plain.groups()
        if star:
            return _mask(spec.low, _top(spec), self._step(spec, item, step_text))
        low = self._value(spec, item, first)
        if last is None:
            if step_text is not None:
                instead = f'"{first}-{_top(spec)}/{step_text}" or "*/{step_text}"'
                self._refuse(spec, item, "has a step without a range", instead)
            return 1 << low
        high = 7 if spec is _WEEKDAY and last == "SUN" and low > 0 else self._value(spec, item, last)
        if low > high:
            self._refuse(spec, item, "runs backwards", f'"{_unwrapped(spec, low, high, step_text)}"')
        return _mask(low, high, self._step(spec, item, step_text))

    def _refuse_foreign(self, spec: _Field, item: str) -> None:
        """Forms of other tools that would mean nothing, or something else, here."""
        if item == "":
            self._refuse(spec, item, "is an empty list item", "values between the commas")
        if item == "?":
            self._refuse(spec, item, '"?" stands alone or not at all', '"*" or a list of values')
        if _NEAREST_WEEKDAY.fullmatch(item):
            wrong = "asks for the nearest weekday, which is not supported"
            self._refuse(spec, item, wrong, 'the day, with a calendar and "shift:"')
        if re.fullmatch(r"R(\(.*\))?(/[0-9]+)?", item):
            self._refuse(spec, item, "is random, and dates must be the same every time", '"H" for a stable spread')
        if re.fullmatch(r"L-[0-9]+", item):
            self._refuse(spec, item, "counts back from the last day, which is not supported", '"L" or a fixed day')

    def _takes_day_form(self, spec: _Field, item: str) -> bool:
        if spec is _DAY and item == "L":
            self.last_day = True
            return True
        if item == "L":
            instead = '"5L" for the last Friday' if spec is _WEEKDAY else "a number or a range"
            self._refuse(spec, item, "alone is the last day of the month, in the third field", instead)
        last, nth = _LAST_WEEKDAY.fullmatch(item), _NTH_WEEKDAY.fullmatch(item)
        if spec is not _WEEKDAY:
            if last or nth:
                self._refuse(spec, item, "names a weekday of the month", "it in the fifth field")
            return False
        if last:
            self.last_weekdays |= 1 << self._value(spec, item, last[1]) % 7
        elif nth:
            number = int(nth[2][:4])
            if not 1 <= number <= 5:
                self._refuse(spec, item, "counts weekdays of a month from 1 to 5", f'"{nth[1]}#1" to "{nth[1]}#5"')
            self.nth_weekdays |= {(self._value(spec, item, nth[1]) % 7, number)}
        elif re.fullmatch(r"L[0-7]", item):
            self._refuse(spec, item, "has the L in front", f'"{item[1]}L"')
        return bool(last or nth)

    def _spread_mask(self, spec: _Field, item: str, first: str | None, last: str | None, step_text: str | None) -> int:
        low, high = spec.low, spec.spread_high or spec.high
        if first is not None and last is not None:
            low, high = self._value(spec, item, first), self._value(spec, item, last)
            if low > high:
                self._refuse(spec, item, "runs backwards", f'"H({high}-{low})"')
        step = self._step(spec, item, step_text)
        if step_text is not None:
            start = low + self._hashed(spec) % min(step, high - low + 1)
            return _mask(start, high, step)
        return 1 << low + self._hashed(spec) % (high - low + 1)

    def _hashed(self, spec: _Field) -> int:
        digest = hashlib.sha256(f"{self.name}:{spec.title}".encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def _value(self, spec: _Field, item: str, text: str) -> int:
        value = spec.names.get(text, -1)
        instead = f"a value from {spec.low} to {spec.high}"
        if text.isdigit():
            value = int(text) if len(text.lstrip("0")) <= 4 else spec.high + 1
            if value < spec.low or value > spec.high:
                self._refuse(spec, item, f"is outside {spec.low}-{spec.high}", instead)
        elif value < 0 and spec.names:
            self._refuse(spec, item, "has an unknown name", "one of " + ", ".join(spec.names).lower())
        elif value < 0:
            self._refuse(spec, item, "takes numbers, not names", instead)
        return value

    def _step(self, spec: _Field, item: str, text: str | None) -> int:
        if text is None:
            return 1
        if len(text.lstrip("0")) > 4:
            self._refuse(spec, item, "has a step that is too large", f"a step from 1 to {spec.high}")
        if int(text) == 0:
            self._refuse(spec, item, "has a step of 0", f"a step from 1 to {spec.high}")
        return int(text)

    def _refuse(self, spec: _Field, item: str, wrong: str, instead: str) -> NoReturn:
        place = max(0, self.expression.upper().find(item))
        written = self.expression[place : place + len(item)]
        shown = written if len(item) <= 24 else written[:24] + "..."
        raise DefinitionError(f'cron "{self.expression}": {spec.title} "{shown}" {wrong}; write {instead}')


def _mask(low: int, high: int, step: int) -> int:
    mask = 0
    for value in range(low, high + 1, step):
        mask |= 1 << value
    return mask


def _members(mask: int) -> tuple[int, ...]:
    return tuple(value for value in range(mask.bit_length()) if mask >> value & 1)


def _top(spec: _Field) -> int:
    return 6 if spec is _WEEKDAY else spec.high


def _example(spec: _Field) -> str:
    return {"month": '"1,4-6"', "day-of-week": '"mon-fri"'}.get(spec.title, f'"{spec.low},5-9,*/{2}"')


def _unwrapped(spec: _Field, low: int, high: int, step_text: str | None) -> str:
    """The two ranges a backward range was meant to be, with the step carried across the end of the field."""
    if step_text is not None:
        top = _top(spec)
        size = top - spec.low + 1
        steps = range(low - spec.low, high - spec.low + size + 1, max(1, int(step_text[:4])))
        values = [spec.low + step % size for step in steps]
        return ",".join(str(value) for value in sorted(set(values)))
    if spec is _WEEKDAY and high == 0:
        return f"{low}-7"
    front = f"{low}-{_top(spec)}" if low < _top(spec) else f"{low}"
    back = f"{spec.low}-{high}" if high > spec.low else f"{high}"
    return f"{front},{back}"


def cron_warnings(fields: CronFields) -> list[str]:
    """What lint says about an expression that is accepted but may not mean what its author thinks."""
    texts = fields.expression.split(" ")
    found = []
    if fields.joins_days_with_or:
        found.append(
            f'day-of-month "{texts[2]}" and day-of-week "{texts[4]}" are joined by OR: it fires on a day that matches '
            "either; leave one of them as * to restrict by the other alone"
        )
    elif texts[2] != "*" and texts[2] != "?" and texts[4] not in "*?":
        found.append(
            f'day-of-month "{texts[2]}" and day-of-week "{texts[4]}" are joined by AND, because one begins with *: '
            "it fires only on days that match both"
        )
    for spec, text in zip(_FIELDS, texts, strict=True):
        found += [warning for item in text.split(",") if (warning := _step_warning(spec, item))]
    return found


_STEP = re.compile(r"(?:\*|([0-9]+)-([0-9]+))/([0-9]+)")


def _step_warning(spec: _Field, item: str) -> str | None:
    parts = _STEP.fullmatch(item)
    if not parts or int(parts[3]) == 1:
        return None
    step = int(parts[3])
    low, high = (int(parts[1]), int(parts[2])) if parts[1] else (spec.low, _top(spec))
    size = high - low + 1
    whole = _top(spec) - spec.low + 1
    if step >= size:
        return (
            f'{spec.title} "{item}": the step is larger than the range, so it means {low} only, '
            f"not every {step} {spec.unit}"
        )
    if size < whole:
        return None
    if spec is _DAY:
        return f'{spec.title} "{item}": the step starts again on the 1st of each month'
    if whole % step:
        last = low + (size - 1) // step * step
        return (
            f'{spec.title} "{item}": {step} does not divide {whole}; after {last} it starts again at {low}, '
            f"so it is not every {step} {spec.unit}"
        )
    return None


_PEER_YEARS = 50
"""How far croniter looks for a next date; it walks, so that this bounds its time."""

_ONE_VALUE = re.compile(r"(?:^|[ ,])((\w+)-\2(?:/[0-9]+)?)(?=[ ,]|$)", re.IGNORECASE)


def croniter_dates(expression: str, after: datetime, count: int) -> list[datetime] | None:
    """The first dates after an instant, in its zone, as croniter reads a normalised expression.

    None if it refuses the text or finds too few dates. Only for telling people about a difference.
    """
    from croniter import CroniterError, croniter  # not when modules load: only lint asks, and it takes a while

    try:
        dates = croniter(expression, after, max_years_between_matches=_PEER_YEARS)
        return [dates.get_next(datetime) for _ in range(count)]
    except CroniterError:
        return None


def croniter_reads_alike(fields: CronFields) -> bool:
    """Whether croniter finds the same values in each field, and at most one day field is restricted to join.

    A tenth of the cost of comparing dates. False also means that only the dates can tell.
    """
    from croniter import CroniterError, croniter

    texts = fields.expression.split(" ")
    if texts[2] not in "*?" and texts[4] not in "*?":
        return False
    try:
        found, numbered = croniter.expand(fields.expression)
    except CroniterError:
        return False
    weekdays = _members(fields.weekdays)
    ours = (fields.minutes, fields.hours, _members(fields.days), fields.months, weekdays)
    wholes = (range(60), range(24), range(1, 32), range(1, 13), range(7))
    alike = [
        tuple(whole) == values if theirs == ["*"] else tuple(theirs) == values
        for theirs, values, whole in zip(found, ours, wholes, strict=True)
    ]
    return all(alike) and not (numbered or fields.last_day or fields.last_weekdays)


def croniter_reading(fields: CronFields) -> str:
    """Why croniter finds other dates than we do, as far as its ways are known; a clause that begins with "it"."""
    one_value = _ONE_VALUE.search(fields.expression)
    if one_value:
        step = one_value[1].partition("/")[2]
        return f'it takes "{one_value[1]}" for "*{f"/{step}" if step else ""}"'
    _, _, day, _, weekday = fields.expression.split(" ")
    if "#" in weekday and "*" != day != "?":
        return f'it does not join "{day}" and "{weekday}" as two fields without "#"'
    if not fields.joins_days_with_or and "*" != day != "?" and "*" != weekday != "?":
        return f'it joins "{day}" and "{weekday}" by OR'
    return "it reads the text differently"
