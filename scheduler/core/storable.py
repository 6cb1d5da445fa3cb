"""What may be stored as JSON in PostgreSQL: checks values and brings numbers into the form ``jsonb`` gives back.

``jsonb`` refuses NUL and lone surrogates, knows no NaN, and returns ``1e22`` as an integer and ``-0.0`` as ``0.0``;
a value that passed through ``storable`` reads back equal, so that its hash stays the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from scheduler.errors import shown_value

Path = tuple[str | int, ...]

SIZE_LIMIT = 256 * 1024
DEPTH_LIMIT = 100
"""Levels of objects and lists. Python's JSON reads a thousand, PostgreSQL's some thousands more."""
_INTEGER_LIMIT = 10**1000
_FLOATS_WITH_EXPONENT = 1e16
"""From here on Python writes a float with an exponent, and jsonb gives it back as an integer."""
_PLACE_LIMIT = 200
_MEASURED = 4
"""Up to about so many times the limit a value is written as JSON to tell its size."""
_FAULTS_LIMIT = 100
_STORE_ELSEWHERE = "store the data and pass a reference"


def storable(value: Any) -> Any:
    """``value`` with its numbers normalised; call it only when ``storage_faults`` found nothing."""
    if isinstance(value, dict):
        return {key: storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    if isinstance(value, float):
        return int(value) if abs(value) >= _FLOATS_WITH_EXPONENT else value + 0.0
    return value


def storage_faults(value: Any, size_limit: int = SIZE_LIMIT) -> list[tuple[Path, str]]:
    """Why ``value`` cannot be stored as ``jsonb``: the path of each offending part, and what to say after its place.

    At most ``_FAULTS_LIMIT``. JSON has a list again wherever it stands, so that a small value can be endless there:
    what is several times too large is refused without writing it.
    """
    inspection = _Inspection(room=_MEASURED * size_limit)
    with suppress(_Enough):
        inspection.look(value, ())
    if inspection.faults:
        return inspection.faults
    if inspection.room < 0:
        return [((), f"is more than {size_limit:,} bytes as JSON: {_STORE_ELSEWHERE}")]
    if (size := len(json.dumps(value, ensure_ascii=False).encode())) > size_limit:
        return [((), f"is {size:,} bytes as JSON, more than {size_limit:,}: {_STORE_ELSEWHERE}")]
    return []


def place(root: str, path: Path) -> str:
    """Where a part stands, as people write it: ``payload.orders[3].total``; cut when very long."""
    text = root + "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{json.dumps(part)}]" for part in path
    )
    return text if len(text) <= _PLACE_LIMIT else f"{text[: _PLACE_LIMIT - 3]}..."


def text_fault(text: str) -> str | None:
    """Why ``text`` cannot be stored, or None."""
    if "\0" in text:
        return "contains a NUL character (\\0), which PostgreSQL cannot store: remove it"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "contains half of a surrogate pair, which is not a character: write the whole character"
    return None


class _Enough(Exception):
    """The rest of a value need not be looked at."""


@dataclass(slots=True)
class _Inspection:
    """What was found so far; ``room`` is how many bytes more, counted low, a value may take as JSON."""

    room: int
    faults: list[tuple[Path, str]] = field(default_factory=list)

    def look(self, value: Any, path: Path) -> None:
        """Look at ``value`` and everything in it. Raises _Enough when there is no room or there are many faults."""
        self.room -= 2  # at least a digit or bracket, and a comma or bracket
        if self.room < 0 or len(self.faults) >= _FAULTS_LIMIT:
            raise _Enough
        if len(path) > DEPTH_LIMIT:
            self.faults.append((path, f"is nested more than {DEPTH_LIMIT} levels deep: make it flatter"))
            return
        match value:
            case None | bool():
                pass
            case str():
                self.room -= len(value)
                if fault := text_fault(value):
                    self.faults.append((path, fault))
            case int():
                self.room -= value.bit_length() // 4
                if abs(value) >= _INTEGER_LIMIT:
                    self.faults.append((path, _refusal("a number of more than 1,000 digits", "a text")))
            case float():
                if not math.isfinite(value):
                    self.faults.append((path, _refusal(_float_name(value), "null or a text")))
            case list() | tuple():
                for index, item in enumerate(value):
                    self.look(item, (*path, index))
            case dict():
                for key, item in value.items():
                    self._look_at_item(key, item, path)
            case _:
                self.faults.append((path, _refusal(f"a value of type {type(value).__name__}", _instead(value))))

    def _look_at_item(self, key: Any, item: Any, path: Path) -> None:
        if not isinstance(key, str):
            self.faults.append((path, f"the key {shown_value(key)} is not text: send str() of it"))
            return
        self.room -= len(key)
        if fault := text_fault(key):
            self.faults.append(((*path, key), f"key {fault}"))
        self.look(item, (*path, key))


def _float_name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _refusal(what: str, instead: str) -> str:
    return f"{what} cannot be stored as JSON; send {instead}"


def _instead(value: Any) -> str:
    match value:
        case date() | time():
            return "its isoformat() as text"
        case timedelta():
            return "its total_seconds()"
        case Decimal():
            return "str() of it, or a float"
        case bytes() | bytearray() | memoryview():
            return "it as base64 text"
        case Set() | Iterator():
            return "a list"
        case Mapping():
            return "a dict"
    return "a dict of what matters, or a text"
