"""What the files of one folder share: names in use, calendars, limits, and the list of problems found."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from itertools import islice

from scheduler.core.definitions.files.document import Document
from scheduler.core.definitions.files.named_calendars import (
    NamedCalendar,
    calendar_fault,
    endless_calendars,
    years_needed,
)
from scheduler.core.definitions.files.shape import Shape
from scheduler.core.definitions.files.words import shown_path
from scheduler.core.models import Limit
from scheduler.core.storable import Path
from scheduler.errors import Problem

_SUGGESTIONS = 500
_PROBLEMS_WITH_HINTS = 100
"""How many known names a misspelled one is compared with, and up to how many problems: comparing takes milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file: its path below the folder, its text with places, and its shape."""

    path: str
    document: Document
    shape: Shape


@dataclass(slots=True, kw_only=True)
class Register:
    """What all files share: names in use, calendars and limits of the owners, and the problems found."""

    is_complete: bool
    limits: dict[str, Limit] = field(default_factory=dict)
    limits_of: dict[str, dict[str, Limit]] = field(default_factory=dict)
    calendars: dict[str, dict[str, NamedCalendar]] = field(default_factory=dict)
    bad_calendars: dict[str, set[str]] = field(default_factory=dict)
    pruned: set[tuple[str, str, str]] = field(default_factory=set)
    places: dict[tuple[str, str, str], tuple[Document, Path]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def report(self, document: Document, path: Path, message: str, *, at_key: bool = False) -> None:
        self.problems.append(document.problem(path, shown_path(path), message, at_key=at_key))

    def add_shared(self, source: Source) -> None:
        """Take in the names of one file, refusing those already taken, and its calendars and limits."""
        model, document = source.shape.model, source.document
        self.pruned |= {(model.owner, str(path[0]), str(path[1])) for path in source.shape.pruned if len(path) == 2}
        for name in model.calendars:
            if self._claim((model.owner, "calendars", name), document, f"within the owner {model.owner}"):
                self._add_calendar(model.owner, name, source)
        for key, limit in model.limits.items():
            if self._claim(("", "limits", key), document, "across all files"):
                self.limits[key] = Limit(key=key, owner=model.owner, concurrency=limit.concurrency)
                self.limits_of.setdefault(model.owner, {})[key] = self.limits[key]
        for name in model.schedules:
            self._claim(("", "schedules", name), document, "across all files")

    def is_first(self, document: Document, name: str) -> bool:
        """Whether the schedule ``name`` of ``document`` is the one that has the name."""
        return self.places["", "schedules", name][0] is document

    def place_of_schedule(self, name: str) -> str | None:
        """``file:line:column`` of a schedule, or None if no file has it."""
        if ("", "schedules", name) not in self.places:
            return None
        document, path = self.places["", "schedules", name]
        line, column = document.place(path, at_key=True)
        return f"{document.file}:{line}:{column}"

    def is_usable(self, owner: str, calendar: str) -> bool:
        """Whether a calendar and all it contains are known and without fault."""
        names, seen = [calendar], {calendar}
        for name in names:
            if name in self.bad_calendars.get(owner, ()) or name not in self.calendars.get(owner, {}):
                return False
            names += [other for other in self.calendars[owner][name].calendars if other not in seen]
            seen.update(names)
        return True

    def check_calendars(self, today: date) -> None:
        """Report what is wrong with calendars, whether or not a schedule uses them."""
        years = years_needed(today, None)
        for owner, calendars in self.calendars.items():
            endless = endless_calendars(calendars)
            for name, calendar in calendars.items():
                document, path = self.places[owner, "calendars", name]
                faults = [fault] if (fault := calendar_fault(calendar, years)) else []
                if name in endless:
                    faults.append("contains itself, directly or through another calendar: remove it from the list")
                for index, other in enumerate(calendar.calendars):
                    if message := self.unknown(owner, "calendars", other):
                        self.report(document, (*path, "calendars", index), message)
                for fault in faults:
                    self.report(document, path, fault)
                    self.bad_calendars.setdefault(owner, set()).add(name)

    def unknown(self, owner: str, section: str, name: str) -> str | None:
        """The complaint about ``name`` not being one of the owner's, unless a broken file or entry explains it."""
        known = self.calendars.get(owner, {}) if section == "calendars" else self.limits_of.get(owner, {})
        if name in known or not self.is_complete or (owner, section, name) in self.pruned:
            return None
        can_hint = len(self.problems) < _PROBLEMS_WITH_HINTS
        close = get_close_matches(name, islice(known, _SUGGESTIONS), n=1) if can_hint else []
        hint = f'did you mean "{close[0]}"?' if close else f"define it under `{section}:`"
        return f'"{name}" is not a {section.removesuffix("s")} of the owner {owner}; {hint}'

    def _claim(self, name: tuple[str, str, str], document: Document, scope: str) -> bool:
        path: Path = name[1:]
        if name not in self.places:
            self.places[name] = (document, path)
            return True
        first, first_path = self.places[name]
        line, column = first.place(first_path, at_key=True)
        place = f"{first.file}:{line}:{column}"
        message = f"is already defined at {place}: names are unique {scope}, so rename one"
        self.report(document, path, message, at_key=True)
        return False

    def _add_calendar(self, owner: str, name: str, source: Source) -> None:
        model = source.shape.model.calendars[name]
        self.calendars.setdefault(owner, {})[name] = NamedCalendar(
            name=name,
            holidays=model.holidays,
            dates=tuple(model.dates),
            weekdays=tuple(model.weekdays),
            calendars=tuple(model.calendars),
        )
