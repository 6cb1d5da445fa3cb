"""Named calendars of definition files, resolved to plain days.

Public holidays come from the optional ``holidays`` package, are looked up here once, when definitions are read, and
stored with them as dates: what plans occurrences later never needs the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from scheduler.core.models import CalendarRule, ExcludedDays, Shift

YEARS_AHEAD = 2
YEARS_BACK = 30

_CODE = re.compile(r"[A-Z]{2,5}(-[^-].*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCalendar:
    """A calendar as written: the union of holidays, dates, weekdays (Monday is 0) and other calendars."""

    name: str
    holidays: str | None = None
    dates: tuple[date, ...] = ()
    weekdays: tuple[int, ...] = ()
    calendars: tuple[str, ...] = ()


def calendar_fault(calendar: NamedCalendar, years: range) -> str | None:
    """Why ``calendar`` itself excludes nothing sensible, as a sentence, or None; its members are not looked at."""
    if not (calendar.holidays or calendar.dates or calendar.weekdays or calendar.calendars):
        return "excludes no day: write {holidays: DE}, {dates: [...]}, {weekdays: [...]}, or a list of calendars"
    if calendar.holidays:
        try:
            holiday_dates(calendar.holidays, years)
        except ValueError as error:
            return f"holidays: {error}"
    return None


def endless_calendars(known: Mapping[str, NamedCalendar]) -> frozenset[str]:
    """The names that contain themselves or something that does."""
    open_members = {name: {other for other in known[name].calendars if other in known} for name in known}
    containers: dict[str, list[str]] = {name: [] for name in known}
    for name, members in open_members.items():
        for member in members:
            containers[member].append(name)
    resolved = [name for name, members in open_members.items() if not members]
    for name in resolved:
        for container in containers[name]:
            open_members[container].discard(name)
            if not open_members[container]:
                resolved.append(container)
    return frozenset(known) - frozenset(resolved)


def calendar_rule(
    names: Iterable[str], known: Mapping[str, NamedCalendar], shift: Shift, today: date, start: date | None
) -> CalendarRule:
    """The days that the calendars ``names`` exclude, from the year of ``start`` to two years after ``today``.

    Every calendar of a union keeps its own name, so that a date left out can name the calendar that did it.
    """
    years = years_needed(today, start)
    members = _members(names, known)
    from_package = any(member.holidays for member in members)
    return CalendarRule(
        excluded=tuple(_excluded_days(member, years) for member in members if not _is_mere_union(member)),
        shift=shift,
        known_until=date(years[-1], 12, 31) if from_package else None,
        source=holidays_version() if from_package else None,
    )


def years_needed(today: date, start: date | None) -> range:
    """The years whose holidays are stored; last year's are there for what lies just behind."""
    first = min(today.year - 1, start.year if start else today.year)
    return range(max(first, today.year - YEARS_BACK), today.year + YEARS_AHEAD + 1)


@lru_cache(maxsize=256)
def holiday_dates(code: str, years: range) -> frozenset[date]:
    """Public holidays, observed days included, of a country, ``country-region`` or exchange.

    Raises ValueError with a sentence when the package or the code is not there.
    """
    package = _holidays_package()
    country, _, region = code.partition("-")
    try:
        if not _CODE.fullmatch(code):
            raise NotImplementedError(code)
        if not region and country in package.list_supported_financial():
            found = package.financial_holidays(country, years=years)
        else:
            found = package.country_holidays(country, subdiv=region or None, years=years)
    except NotImplementedError as error:
        raise ValueError(_unknown_code(package, country, region)) from error
    return frozenset(day for day in found if day.year in years)


def holidays_version() -> str:
    """The version of the holidays package, like ``holidays 0.109``."""
    return f"holidays {_holidays_package().__version__}"


def _holidays_package() -> Any:
    try:
        import holidays
    except ImportError as error:
        raise ValueError("needs the holidays package: pip install 'sched-pg[holidays]', or list dates") from error
    return holidays


def _unknown_code(package: Any, country: str, region: str) -> str:
    countries: Mapping[str, Iterable[str]] = package.list_supported_countries()
    if country not in countries:
        close = get_close_matches(country.upper(), countries, n=1)
        hint = f'did you mean "{close[0]}"?' if close else 'write a code like "DE", "DE-BE" or "US-NY"'
        return f'"{country}" is not a country that the holidays package knows; {hint}'
    regions = ", ".join(countries[country]) or "none"
    return f'"{country}" has no region "{region}" in the holidays package; it knows {regions}'


def _members(names: Iterable[str], known: Mapping[str, NamedCalendar]) -> list[NamedCalendar]:
    """The calendars ``names`` and everything they contain, each once."""
    found = list(dict.fromkeys(names))
    seen = set(found)
    for name in found:
        for other in known[name].calendars:
            if other not in seen:
                seen.add(other)
                found.append(other)
    return [known[name] for name in found]


def _is_mere_union(calendar: NamedCalendar) -> bool:
    return not (calendar.holidays or calendar.dates or calendar.weekdays)


def _excluded_days(calendar: NamedCalendar, years: range) -> ExcludedDays:
    from_package = holiday_dates(calendar.holidays, years) if calendar.holidays else frozenset()
    return ExcludedDays(
        name=calendar.name,
        dates=from_package | frozenset(calendar.dates),
        weekdays=frozenset(calendar.weekdays),
    )
