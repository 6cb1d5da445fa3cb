"""One schedule as it stands in its file: its values before and after the defaults, and where to report a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.core.definitions.files.model import CommonModel, Model, ScheduleModel
from scheduler.core.definitions.files.register import Register, Source
from scheduler.core.storable import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One schedule as it stands in its file: its own values before the defaults, and where they are.

    ``own`` are the keys of ``schedule`` that are its own, null included; ``keys`` those with a value, the faulty ones
    included; ``pruned`` the faulty ones.
    """

    name: str
    schedule: ScheduleModel
    own: set[str]
    defaults: CommonModel
    default_parts: Mapping[str, Mapping[str, Any]]
    keys: frozenset[str]
    pruned: frozenset[str]
    source: Source
    register: Register

    def value(self, key: str) -> Any:
        """The schedule's own value, null included, else the default."""
        return getattr(self.schedule if key in self.own else self.defaults, key)

    def part(self, key: str) -> Mapping[str, Any]:
        """The fields of ``dst``, ``retry`` or ``catchup``: each the schedule's own, else the default."""
        if key not in self.own:
            return self.default_parts[key]
        model: Model = getattr(self.schedule, key)
        return {**self.default_parts[key], **{name: getattr(model, name) for name in model.model_fields_set}}

    def lacks_for_sure(self, *keys: str) -> bool:
        """Whether none of ``keys`` is written, not even with a fault, nor under a name we do not know."""
        unknown = self.pruned - ScheduleModel.model_fields.keys()
        faulty_default = any(("defaults", key) in self.source.shape.pruned for key in keys)
        return not (self.keys & set(keys) or unknown or faulty_default)

    def report(self, key: str, message: str, *inner: str | int, at_key: bool = False) -> None:
        """A problem with ``key``: where the schedule has it, else in the defaults, else at the schedule's name."""
        path: Path = ("schedules", self.name, key, *inner)
        if key not in self.keys and key in self.defaults.model_fields_set:
            path = ("defaults", key, *inner)
        self.register.report(self.source.document, path, message, at_key=at_key)

    def complain(self, message: str) -> None:
        """A problem with the schedule as a whole."""
        self.register.report(self.source.document, ("schedules", self.name), message, at_key=True)
