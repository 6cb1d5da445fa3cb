"""Plan and apply: make the definitions in the database what the files of their owners say.

Comparing needs no locks. Applying is one short transaction: the pass lock, so that no date is decided meanwhile; the
changed schedules, rechecked to be what they were compared with; then old revisions end and new ones begin at that
instant. Dates up to it keep the old rule, planned dates after it make room for the new one's; nothing in the past fires
or is lost. Schedules that somebody else changed meanwhile are compared again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.core.definitions.diff import Change, ChangeKind, diff_definitions
from scheduler.core.ledger.planning import Horizon, extension
from scheduler.core.models import Definition, DefinitionSet
from scheduler.core.time.localtime import tz_version
from scheduler.core.time.occurrences import compile_timing
from scheduler.errors import ConfigError, DefinitionError, Problem, TransientStorageError
from scheduler.storage.database import Connection, database_now, transaction
from scheduler.storage.definitions import (
    Overtaken,
    Revision,
    insert_schedules,
    lock_as_compared,
    move_files,
    retire_schedules,
    revise_schedules,
    write_limits,
)
from scheduler.storage.queries import execute
from scheduler.storage.schedules import (
    DefinitionCache,
    PlannedSlice,
    Position,
    ScheduleRow,
    all_schedules,
    histories,
    record_event,
    use_tzdata,
    write_plan,
)

ROUNDS = 8
"""How often a comparison that others overtook is repeated."""

FIRST_DATES = Horizon(reach=timedelta(0), min_dates=2)
"""What is written with the change itself; the planner adds the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """What applying would do. ``moved_files`` are definitions that only stand elsewhere now."""

    changes: Sequence[Change]
    unchanged: int
    moved_files: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """What applying did, and the instant from which it holds (None when nothing changed)."""

    changes: Sequence[Change]
    unchanged: int
    applied_at: datetime | None


def plan_changes(connection: Connection, wanted: DefinitionSet, *, allow_retire: bool = False) -> ApplyPlan:
    """Compare the files with what is applied; changes nothing.

    Raises DefinitionError for a name that belongs to another owner or is reserved, ConfigError for a folder that would
    retire everything, or more than half of an owner's schedules, without ``allow_retire``.
    """
    return _compare(all_schedules(connection), wanted, allow_retire)


def apply_definitions(
    connection: Connection,
    wanted: DefinitionSet,
    *,
    actor: str,
    allow_retire: bool = False,
    now: datetime | None = None,
) -> ApplyResult:
    """Apply all definitions at once, or none. Applying the same again changes nothing.

    ``now`` is the database's clock, under the pass lock, unless the simulation says otherwise.
    Raises what ``plan_changes`` raises, and TransientStorageError when others kept changing the same schedules.
    """
    for definition in wanted.schedules.values():
        compile_timing(definition.timing)
    for _ in range(ROUNDS):
        rows = all_schedules(connection)
        plan = _compare(rows, wanted, allow_retire)
        try:
            applied_at = _write(connection, {row.name: row for row in rows}, wanted, plan, actor, now)
        except Overtaken:
            continue
        return ApplyResult(
            changes=plan.changes, unchanged=plan.unchanged, applied_at=applied_at if plan.changes else None
        )
    raise TransientStorageError("others kept changing these schedules meanwhile; nothing was applied, try again")


def _compare(rows: Sequence[ScheduleRow], wanted: DefinitionSet, allow_retire: bool) -> ApplyPlan:
    applied = {row.name: row.decoded for row in rows if row.retired_at is None}
    retired = {row.name: row.decoded for row in rows if row.retired_at is not None}
    _refuse_reserved_names(rows, wanted.schedules)
    changes = diff_definitions(wanted.schedules, applied, retired, wanted.owners)
    _refuse_mass_retirement(changes, applied, wanted, allow_retire)
    files = {row.name: row.file for row in rows}
    changed = {change.name for change in changes}
    moved = {
        name: definition.file
        for name, definition in wanted.schedules.items()
        if name not in changed and files[name] != definition.file
    }
    return ApplyPlan(changes=changes, unchanged=len(wanted.schedules.keys() - changed), moved_files=moved)


def _refuse_reserved_names(rows: Sequence[ScheduleRow], wanted: Mapping[str, Definition]) -> None:
    known = {row.name for row in rows}
    reserved = {former: row.name for row in rows for former in row.former_names if former not in known}
    problems = [
        Problem(
            path=name,
            file=wanted[name].file or None,
            message=f'this was the name of "{reserved[name]}" and stays reserved for its history: choose another',
        )
        for name in wanted
        if name in reserved and reserved[name] != wanted[name].renamed_from
    ]
    if problems:
        raise DefinitionError(problems)


def _refuse_mass_retirement(
    changes: Sequence[Change], applied: Mapping[str, Definition], wanted: DefinitionSet, allow_retire: bool
) -> None:
    if allow_retire:
        return
    if not wanted.schedules:
        raise ConfigError("there is no schedule in these files; to retire all of them on purpose add --allow-retire")
    for owner in sorted(wanted.owners):
        of_owner = [name for name, definition in applied.items() if definition.owner == owner]
        gone = [change.name for change in changes if change.kind is ChangeKind.RETIRED and change.old is not None]
        gone = [name for name in gone if name in of_owner]
        if len(gone) * 2 > len(of_owner):
            raise ConfigError(
                f"this would retire {len(gone)} of the {len(of_owner)} schedules of {owner} ({', '.join(gone[:5])}"
                f"{', …' if len(gone) > 5 else ''}); if that is meant add --allow-retire"
            )


def _write(
    connection: Connection,
    rows: Mapping[str, ScheduleRow],
    wanted: DefinitionSet,
    plan: ApplyPlan,
    actor: str,
    now: datetime | None,
) -> datetime:
    """Carry a plan out in one transaction. Raises Overtaken, nothing done, when a schedule is not what was compared."""
    use_tzdata(connection, tz_version())
    with transaction(connection):
        execute(connection, "pass_lock_take")
        now = now or database_now(connection)
        lock_as_compared(connection, [rows[change.old_name] for change in plan.changes if change.old is not None])
        created = insert_schedules(
            connection, [c.new for c in plan.changes if c.old is None and c.new is not None], now
        )
        revisions = [_revision(change, rows, created) for change in plan.changes if change.new is not None]
        retired = [rows[change.name].id for change in plan.changes if change.kind is ChangeKind.RETIRED]
        positions = revise_schedules(connection, revisions, valid_from=now, actor=actor)
        retire_schedules(connection, retired, valid_from=now)
        write_limits(connection, wanted.limits.values())
        move_files(connection, {rows[name].id: (rows[name].revision, file) for name, file in plan.moved_files.items()})
        _note(connection, plan.changes, rows, created, actor)
        _write_first_dates(connection, positions, now)
    return now


def _revision(change: Change, rows: Mapping[str, ScheduleRow], created: Mapping[str, int]) -> Revision:
    assert change.new is not None
    is_new = change.old is None
    return Revision(
        schedule_id=created[change.name] if is_new else rows[change.old_name].id,
        number=1 if is_new else rows[change.old_name].revision + 1,
        definition=change.new,
    )


def _note(
    connection: Connection,
    changes: Sequence[Change],
    rows: Mapping[str, ScheduleRow],
    created: Mapping[str, int],
    actor: str,
) -> None:
    for change in changes:
        record_event(
            connection,
            f"definition_{change.kind.value}",
            actor=actor,
            schedule_id=created[change.name] if change.old is None else rows[change.old_name].id,
            reason=change.note or None,
            details={"fields": {field.field: [field.old, field.new] for field in change.fields}},
        )


def _write_first_dates(connection: Connection, positions: Sequence[Position], now: datetime) -> None:
    """The next dates of each new revision; the planner adds the rest, and what the old revision still lacks."""
    found = histories(connection, [position.id for position in positions], DefinitionCache())
    slices = []
    for position in positions:
        ahead = extension(found[position.id], now, now, FIRST_DATES, FIRST_DATES.min_dates)
        is_behind = position.planned_until < now
        reached = position.planned_until if is_behind else ahead.planned_until
        slices.append(PlannedSlice(position=position, planned_until=reached, plan_at=now, dates=ahead.dates))
    write_plan(connection, slices, tzdata=tz_version(), now=now, by="apply")
