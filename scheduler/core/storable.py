"""What may be stored as JSON in PostgreSQL: checks values and brings numbers into the form ``jsonb`` gives back.

``jsonb`` refuses NUL and lone surrogates, knows no NaN, and returns ``1e22`` as an integer and ``-0.0`` as ``0.0``;
a value that passed through ``storable`` reads back equal, so that its hash stays the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]

SIZE_LIMIT = 256 * 1024
_INTEGER_LIMIT = 10**1000
_FLOATS_WITH_EXPONENT = 1e16
"""From here on Python writes a float with an exponent, and jsonb gives it back as an integer."""


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
    """Why ``value`` cannot be stored as ``jsonb``: the path of each offending part, and a sentence about it."""
    faults = list(_faults(value, ()))
    if not faults and (size := len(json.dumps(value, ensure_ascii=False).encode())) > size_limit:
        faults = [((), f"is {size:,} bytes as JSON, more than {size_limit:,}: store the data and pass a reference")]
    return faults


def text_fault(text: str) -> str | None:
    """Why ``text`` cannot be stored, or None."""
    if "\0" in text:
        return "contains a NUL character (\\0), which PostgreSQL cannot store: remove it"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "contains half of a surrogate pair, which is not a character: write the whole character"
    return None


def _faults(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    match value:
        case None | bool():
            pass
        case str():
            if fault := text_fault(value):
                yield path, fault
        case int():
            if abs(value) >= _INTEGER_LIMIT:
                yield path, "is a number of more than 1,000 digits: quote it"
        case float():
            if not math.isfinite(value):
                yield path, "is not a finite number: quote it to keep it as text"
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _faults(item, (*path, index))
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    yield path, f"has the key {key!r}, which is not text"
                    continue
                if fault := text_fault(key):
                    yield (*path, key), f"key {fault}"
                yield from _faults(item, (*path, key))
        case _:
            yield path, f"is a {type(value).__name__}, which JSON cannot hold"
