"""Writing definitions: schedules, revisions and limits, in the transaction that ``services.apply`` owns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from scheduler.core.definitions.codec import definition_hash, definition_to_json
from scheduler.core.models import Definition, Limit
from scheduler.storage.database import Connection
from scheduler.storage.queries import execute, fetch
from scheduler.storage.schedules import Position, ScheduleRow


class Overtaken(Exception):
    """Somebody else changed a schedule between comparing and locking; roll back and compare again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A new revision of a schedule."""

    schedule_id: int
    number: int
    definition: Definition


@dataclass(frozen=True, slots=True)
class _Locked:
    id: int
    revision: int
    retired_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Created:
    id: int
    name: str


def lock_as_compared(connection: Connection, rows: Sequence[ScheduleRow]) -> None:
    """Lock these schedules in id order. Raises Overtaken if one is not what it was when it was read."""
    locked = fetch(connection, _Locked, "schedules_lock", {"ids": [row.id for row in rows]})
    if {(row.id, row.revision, row.retired_at) for row in locked} != {
        (row.id, row.revision, row.retired_at) for row in rows
    }:
        raise Overtaken


def insert_schedules(connection: Connection, definitions: Sequence[Definition], applied_at: datetime) -> dict[str, int]:
    """Make new schedules, without a revision yet; returns their ids by name. Raises Overtaken for a name just taken."""
    rows = [_identity(definition) for definition in definitions]
    created = fetch(connection, _Created, "schedules_insert", {"rows": Jsonb(rows), "valid_from": applied_at})
    if len(created) != len(definitions):
        raise Overtaken
    execute(connection, "limits_insert_for_schedules", {"ids": [row.id for row in created]})
    return {row.name: row.id for row in created}


def revise_schedules(
    connection: Connection, revisions: Sequence[Revision], *, valid_from: datetime, actor: str
) -> list[Position]:
    """End the revisions in force at ``valid_from`` and begin these; planned dates after it are removed."""
    if not revisions:
        return []
    ids = [revision.schedule_id for revision in revisions]
    execute(connection, "revisions_close", {"ids": ids, "valid_from": valid_from})
    execute(
        connection,
        "revisions_insert",
        {"rows": Jsonb([_revision_row(revision) for revision in revisions]), "valid_from": valid_from, "actor": actor},
    )
    execute(connection, "occurrences_unplan", {"ids": ids, "valid_from": valid_from})
    rows = [
        {
            "schedule_id": revision.schedule_id,
            "revision": revision.number,
            **_identity(revision.definition),
        }
        for revision in revisions
    ]
    return fetch(connection, Position, "schedules_revise", {"rows": Jsonb(rows), "valid_from": valid_from})


def retire_schedules(connection: Connection, ids: Sequence[int], *, valid_from: datetime) -> None:
    """Expect no date of these after ``valid_from``; what is queued goes on under its own revision."""
    if ids:
        parameters = {"ids": list(ids), "valid_from": valid_from}
        execute(connection, "revisions_close", parameters)
        execute(connection, "occurrences_unplan", parameters)
        execute(connection, "schedules_retire", parameters)


def write_limits(connection: Connection, limits: Iterable[Limit]) -> None:
    """Make limits what the files say."""
    rows = [{"key": limit.key, "slots": limit.concurrency, "owner": limit.owner} for limit in limits]
    if rows:
        execute(connection, "limits_apply", {"rows": Jsonb(rows)})


def move_files(connection: Connection, files: Mapping[int, tuple[int, str]]) -> None:
    """Note where definitions stand now: file by schedule id and revision."""
    if files:
        rows = [{"schedule_id": key, "revision": revision, "file": file} for key, (revision, file) in files.items()]
        execute(connection, "schedules_move_file", {"rows": Jsonb(rows)})


def _identity(definition: Definition) -> dict[str, Any]:
    start, end = definition.timing.start, definition.timing.end
    return {
        "name": definition.name,
        "owner": definition.owner,
        "start_at": start and start.isoformat(),
        "end_at": end and end.isoformat(),
    }


def _revision_row(revision: Revision) -> dict[str, Any]:
    return {
        "schedule_id": revision.schedule_id,
        "revision": revision.number,
        "hash": definition_hash(revision.definition),
        "definition": definition_to_json(revision.definition),
        "file": revision.definition.file,
    }
