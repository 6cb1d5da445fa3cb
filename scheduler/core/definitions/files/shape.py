"""Checks the shape of a file's value, and says in our words what does not fit: misspelled, misplaced and foreign keys.

A faulty part is reported and taken out, and the rest is checked again: ``build`` then finds what else is wrong with it,
so that one reading shows all problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from scheduler.core.definitions.files.model import FileModel, Model, ScheduleModel
from scheduler.core.definitions.files.words import did_you_mean, kind_of, listed, not_text, shown
from scheduler.core.storable import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong at ``path``; ``at_key`` if the key itself is meant rather than its value."""

    path: Path
    message: str
    at_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The model of what fits, the faults of what does not, and the paths that were taken out for them."""

    model: FileModel
    faults: tuple[Fault, ...] = ()
    pruned: frozenset[Path] = frozenset()


def check_shape(value: Any) -> Shape:
    """The shape of a file's ``value``; the value itself is not changed."""
    if not isinstance(value, dict):
        message = f"{kind_of(value)} stands here: a definition file begins with `version: 1` and `schedules:`"
        return Shape(model=_EMPTY, faults=(Fault(path=(), message=message),))
    faults: dict[Fault, None] = {}
    pruned: set[Path] = set()
    while True:
        try:
            model = FileModel.model_validate(value)
        except ValidationError as error:
            found = [_fault(item) for item in error.errors(include_url=False)]
            faults |= dict.fromkeys(found)
            paths = {_whole_part(fault.path) for fault in found}
            assert not paths <= pruned, "every round takes something out"
            pruned |= paths
            value = {"version": 1, **_without(value, paths)}
        else:
            return Shape(model=model, faults=tuple(faults), pruned=frozenset(pruned))


_EMPTY = FileModel(version=1)

_DEPTHS = {"schedules": 3, "calendars": 2, "limits": 2, "defaults": 2}
"""How deep the smallest part of a section lies that can be taken out without changing what is around it."""


def _whole_part(path: Path) -> Path:
    return path[: _DEPTHS.get(str(path[0]), 1)]


def _without(value: Any, paths: set[Path]) -> Any:
    """``value`` without the parts at ``paths``."""
    here = {path[0] for path in paths if len(path) == 1}
    below: dict[Any, set[Path]] = {}
    for path in paths:
        if len(path) > 1:
            below.setdefault(path[0], set()).add(path[1:])
    return {key: _without(item, below[key]) if key in below else item for key, item in value.items() if key not in here}


_FOREIGN_KEYS: Mapping[str, str] = {
    "name": "a schedule's name is the key it stands under",
    "enabled": "a schedule in a file is active; `sched schedules pause` stops it for a while",
    "disabled": "a schedule in a file is active; `sched schedules pause` stops it for a while",
    "task": "write `job:`",
    "handler": "write `job:`",
    "command": "write `run: {shell: ...}`",
    "script": "write `run: {shell: ...}`",
    "schedule": "write `cron:`, `every:`, `rrule:` or `at:`",
    "interval": "write `every:`",
    "tz": "write `timezone:`",
    "args": "write `payload:`",
    "retries": "write `retry: {max_attempts: ...}`",
    "max_attempts": "write `retry: {max_attempts: ...}`",
    "grace": "write `catchup: {grace: ...}`",
    "max_age": "write `catchup: {max_age: ...}`",
    "concurrency": "write `limits:` at the top of the file and name one with `limit:`",
    "holidays": "name a calendar under `calendars:` and write `calendar: {except: NAME}`",
}


def _fault(error: Any) -> Fault:
    """Pydantic's error in our words."""
    path = tuple(step for step in error["loc"] if step != "[key]")
    kind, given = error["type"], error["input"]
    if kind == "value_error":
        return Fault(path=path, message=str(error["ctx"]["error"]), at_key="[key]" in error["loc"])
    if kind == "extra_forbidden":
        return Fault(path=path, message=_unknown_key(path), at_key=True)
    if kind == "missing":
        return Fault(path=path, message=_MISSING.get(str(path[-1]), "is missing: it must be given"))
    if kind in ("model_type", "dict_type"):
        message = f"{kind_of(given)} stands here, but a mapping is needed: {_example(path)}"
        return Fault(path=path, message=message, at_key=given is None)
    if kind == "list_type":
        return Fault(path=path, message=f"{kind_of(given)} stands here, but a list is needed: write [a, b]")
    if kind == "too_short":
        return Fault(path=path, message="is empty: give at least one, or leave the key out")
    if kind == "too_long":
        return Fault(path=path, message=f"has more than {error['ctx']['max_length']:,} items")
    if kind == "string_type":
        return Fault(path=path, message=not_text(given))
    return Fault(path=path, message=f"{error['msg']} (given: {shown(given)})")


_MISSING = {
    "version": "is missing: write `version: 1` at the top of the file",
    "except": "is missing: name the calendar, like {except: de-holidays}",
    "concurrency": "is missing: write {concurrency: 4}",
    "url": "is missing: write the address to call",
    "text": "is missing: write the statements to run",
}


def _example(path: Path) -> str:
    examples = {
        "schedules": "write names, and below each name its fields",
        "calendar": "write {except: NAME}",
        "retry": "write {max_attempts: 5}",
        "catchup": "write {policy: latest}",
        "dst": "write {gap: run_after, overlap: first}",
        "payload": "write {key: value}",
        "run": "write {shell: ...}, {http: ...} or {sql: ...}",
    }
    last = next((str(step) for step in reversed(path) if isinstance(step, str)), "")
    parent_example = {"calendars": "write {holidays: DE}, {dates: [...]}, {weekdays: [...]}", "limits": _LIMIT_EXAMPLE}
    if len(path) == 2 and path[0] in parent_example:
        return parent_example[str(path[0])]
    return examples.get(last, "write `key: value` lines below it")


_LIMIT_EXAMPLE = "write {concurrency: 4}"


def _unknown_key(path: Path) -> str:
    key = str(path[-1])
    known = _known_keys(path[:-1])
    if path[0] == "defaults" and len(path) == 2 and key in _keys(ScheduleModel):
        return "belongs to a single schedule and cannot be a default"
    if len(path) == 1 and key in _keys(ScheduleModel):
        return "belongs to a schedule: write it below `schedules:` and the schedule's name"
    if path[0] == "schedules" and len(path) == 3 and key in _FOREIGN_KEYS:
        return f"is not a known key: {_FOREIGN_KEYS[key]}"
    if close := did_you_mean(key, known):
        return f"is not a known key{close}"
    return f"is not a known key here: remove it, or write one of {listed(known)}"


def _known_keys(path: Path) -> list[str]:
    """The keys of the model that stands at ``path``."""
    kind: Any = FileModel
    for step in path:
        if isinstance(kind, type) and issubclass(kind, Model):
            names = {field.alias or name: field for name, field in kind.model_fields.items()}
            kind = _inner_model(names[str(step)].annotation)
        else:
            kind = _inner_model(get_args(kind)[1])
    return _keys(kind)


def _inner_model(annotation: Any) -> Any:
    """The model, or dict of models, inside ``Annotated`` and ``| None``."""
    if get_origin(annotation) is dict or (isinstance(annotation, type) and issubclass(annotation, Model)):
        return annotation
    return next(found for part in get_args(annotation) if (found := _inner_model(part)) is not None)


def _keys(model: type[Model]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
