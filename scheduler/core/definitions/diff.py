"""What applying definitions would change: schedules added, changed, renamed, revived and retired, and their dates.

Pure: wanted definitions against the applied ones, values in and values out. ``services.apply`` does what is found here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from scheduler.core.definitions.codec import canonical_text, identity
from scheduler.core.models import Definition, Occurrence, Timing
from scheduler.core.time.occurrences import occurrences_between
from scheduler.errors import DefinitionError, Problem

DATES_LIMIT = 20_000
"""How many dates of either side ``moved_dates`` looks at unless told otherwise."""
PARTNER_RANGE = timedelta(days=2)
"""How far beyond the range the other half of a move may be: another zone, or another hour of the same local day."""


class ChangeKind(StrEnum):
    """What applying does to one schedule."""

    ADDED = "added"
    CHANGED = "changed"
    RENAMED = "renamed"
    REVIVED = "revived"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One field that differs, by its path in the JSON form (``timing.rule``, ``retry.max``); None: not there."""

    field: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One schedule that applying would change.

    ``name`` is the name afterwards, ``old_name`` the one it is applied under. ``new`` is None for a retired schedule,
    ``old`` for an added one, and the last applied definition for a revived one. ``note`` is for people.
    """

    kind: ChangeKind
    name: str
    old_name: str
    old: Definition | None
    new: Definition | None
    fields: tuple[FieldChange, ...] = ()
    note: str = ""


def diff_definitions(
    wanted: Mapping[str, Definition],
    applied: Mapping[str, Definition],
    retired: Mapping[str, Definition] | None = None,
    owners: Collection[str] | None = None,
) -> list[Change]:
    """The changes that turn ``applied`` into ``wanted``: those of wanted schedules in their order, then retirements.

    ``applied`` are the schedules in force, of all owners; only those of ``owners`` (default: the owners of ``wanted``)
    are retired when no longer wanted. ``retired`` are former schedules by name, with their last definition: wanting
    such a name revives its schedule. A ``renamed_from`` that was already carried out, or that no database ever had,
    changes nothing. A schedule that is the same as applied has no entry.

    Raises DefinitionError if a name belongs to another owner, or a rename is ambiguous; all such problems at once.
    """
    owners = {definition.owner for definition in wanted.values()} if owners is None else owners
    successors: dict[str, str] = {}
    for name, definition in wanted.items():
        if definition.renamed_from is not None:
            successors.setdefault(definition.renamed_from, name)
    comparison = _Comparison(
        wanted=wanted, applied=applied, retired=retired or {}, owners=owners, successors=successors
    )
    problems = [problem for name in wanted for problem in comparison.problems(name)]
    if problems:
        raise DefinitionError(problems)
    changes = [change for name in wanted if (change := comparison.change(name)) is not None]
    kept = {change.old_name for change in changes if change.kind is ChangeKind.RENAMED} | wanted.keys()
    gone = [name for name, old in applied.items() if name not in kept and old.owner in owners]
    return changes + [
        Change(kind=ChangeKind.RETIRED, name=name, old_name=name, old=applied[name], new=None) for name in sorted(gone)
    ]


def changed_fields(old: Definition, new: Definition) -> tuple[FieldChange, ...]:
    """The fields in which two definitions differ, with both values in their JSON form, in the order of the JSON.

    A rule, a payload, ``run`` and the excluded days are compared as a whole; the schedule's name is not compared.
    """
    before, after = identity(old), identity(new)
    if canonical_text(before) == canonical_text(after):
        return ()
    left, right = _flat(before), _flat(after)
    return tuple(
        FieldChange(field=field, old=left.get(field), new=right.get(field))
        for field in dict.fromkeys((*right, *left))
        if canonical_text(left.get(field)) != canonical_text(right.get(field))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDate:
    """One local day's date that stays expected at another instant, or at the same one but due at another time."""

    old: Occurrence
    new: Occurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDates:
    """What a change of timing does to the expected dates of a range, oldest first.

    ``until`` is how far both sides were compared: less than asked for if there were more dates than the limit.
    """

    appear: tuple[datetime, ...]
    vanish: tuple[datetime, ...]
    move: tuple[MovedDate, ...]
    until: datetime


def moved_dates(
    old: Timing | None, new: Timing | None, after: datetime, until: datetime, limit: int = DATES_LIMIT
) -> MovedDates:
    """Logical dates in ``(after, until]`` that appear, vanish or move when ``new`` takes the place of ``old``.

    None stands for a schedule that is not there. A date has moved if its wall time is the same (another zone), or if
    it is the only change of its local day; one end of a move may lie beyond ``until``. At most ``limit`` dates of
    either side are compared.
    """
    beyond = until + PARTNER_RANGE
    left, right = _occurrences(old, after, beyond, limit), _occurrences(new, after, beyond, limit)
    reached = min([beyond, *(side[-1].logical_date for side in (left, right) if len(side) == limit)])
    before = {date.logical_date: date for date in left if date.logical_date <= reached}
    behind = {date.logical_date: date for date in right if date.logical_date <= reached}
    moved = [
        MovedDate(old=before[instant], new=behind[instant])
        for instant in before.keys() & behind.keys()
        if before[instant].due_at != behind[instant].due_at
    ]
    gone = [date for instant, date in before.items() if instant not in behind]
    come = [date for instant, date in behind.items() if instant not in before]
    for pairing in (_by_wall, _by_day):
        pairs = pairing(gone, come)
        moved += pairs
        left_pairs, right_pairs = ({pair.old for pair in pairs}, {pair.new for pair in pairs})
        gone = [date for date in gone if date not in left_pairs]
        come = [date for date in come if date not in right_pairs]
    end = min(until, reached)
    moved = [pair for pair in moved if min(pair.old.logical_date, pair.new.logical_date) <= end]
    return MovedDates(
        appear=tuple(date.logical_date for date in come if date.logical_date <= end),
        vanish=tuple(date.logical_date for date in gone if date.logical_date <= end),
        move=tuple(sorted(moved, key=lambda pair: pair.new.logical_date)),
        until=end,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    wanted: Mapping[str, Definition]
    applied: Mapping[str, Definition]
    retired: Mapping[str, Definition]
    owners: Collection[str]
    successors: Mapping[str, str]

    def problems(self, name: str) -> list[Problem]:
        new = self.wanted[name]
        old_name = self._old_name(name)
        old = self.applied.get(old_name) or self.retired.get(old_name)
        found = []
        if old is not None and old.owner not in self.owners:
            subject = "is" if old_name == name else f'was "{old_name}", which is'
            found.append(f"{subject} a schedule of the owner {old.owner}: choose another name, or apply as that owner")
        former = new.renamed_from
        if former in self.applied and name in self.applied and former != name:
            found.append(f'renamed_from: "{former}" and "{name}" are both in force: remove renamed_from')
        if former is not None and self.successors[former] != name:
            taker = self.successors[former]
            found.append(f'renamed_from: "{former}" was renamed to "{taker}": a schedule has one successor')
        return [Problem(path=name, message=message, file=new.file or None) for message in found]

    def change(self, name: str) -> Change | None:
        new, old_name = self.wanted[name], self._old_name(name)
        if old_name != name:
            old = self.applied.get(old_name) or self.retired[old_name]
            note = f"was {old_name}; its history stays with it"
            fields = changed_fields(old, new)
            kind = ChangeKind.RENAMED
            return Change(kind=kind, name=name, old_name=old_name, old=old, new=new, fields=fields, note=note)
        if name in self.applied:
            fields = changed_fields(self.applied[name], new)
            if not fields:
                return None
            old = self.applied[name]
            return Change(kind=ChangeKind.CHANGED, name=name, old_name=name, old=old, new=new, fields=fields)
        if name in self.retired:
            old = self.retired[name]
            fields = changed_fields(old, new)
            return Change(kind=ChangeKind.REVIVED, name=name, old_name=name, old=old, new=new, fields=fields)
        note = f"renamed_from: no schedule {new.renamed_from} here, so it is new" if new.renamed_from else ""
        return Change(kind=ChangeKind.ADDED, name=name, old_name=name, old=None, new=new, note=note)

    def _old_name(self, name: str) -> str:
        """The name the schedule has in the database: the former one only while the new one is not known there."""
        former = self.wanted[name].renamed_from
        if former is None or former in self.wanted or name in self.applied or name in self.retired:
            return name
        return former if former in self.applied or former in self.retired else name


_WHOLE = frozenset({"timing.rule", "payload", "run", "timing.calendar.excluded"})
_NOT_COMPARED = frozenset({"format", "name", "timing.name"})


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if path in _NOT_COMPARED:
            continue
        if isinstance(item, dict) and path not in _WHOLE:
            fields |= _flat(item, f"{path}.")
        elif not (item is None and path == "timing.calendar"):
            fields[path] = item
    return fields


def _occurrences(timing: Timing | None, after: datetime, until: datetime, limit: int) -> list[Occurrence]:
    return [] if timing is None else occurrences_between(timing, after, until, limit)


def _by_wall(gone: list[Occurrence], come: list[Occurrence]) -> list[MovedDate]:
    walls = {(date.wall, date.wall.fold): date for date in come if date.wall is not None}
    return [
        MovedDate(old=date, new=walls[date.wall, date.wall.fold])
        for date in gone
        if date.wall is not None and (date.wall, date.wall.fold) in walls
    ]


def _by_day(gone: list[Occurrence], come: list[Occurrence]) -> list[MovedDate]:
    left, right = _single_of_day(gone), _single_of_day(come)
    return [MovedDate(old=date, new=right[day]) for day, date in left.items() if day in right]


def _single_of_day(dates: list[Occurrence]) -> dict[Any, Occurrence]:
    days: dict[Any, list[Occurrence]] = {}
    for date in dates:
        days.setdefault(date.local_date, []).append(date)
    return {day: found[0] for day, found in days.items() if len(found) == 1}
