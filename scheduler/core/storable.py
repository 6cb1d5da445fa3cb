"""What may be stored as JSON in PostgreSQL: checks values and brings numbers into the form ``jsonb`` gives back.

``jsonb`` refuses NUL and lone surrogates, knows no NaN, and returns ``1e22`` as an integer and ``-0.0`` as ``0.0``;
a value that passed through ``storable`` reads back equal, so that its hash stays the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

Path = tuple[str | int, ...]

SIZE_LIMIT = 256 * 1024
DEPTH_LIMIT = 100
"""Levels of objects and lists. Python's JSON reads a thousand, PostgreSQL's some thousands more."""
_INTEGER_LIMIT = 10**1000
_FLOATS_WITH_EXPONENT = 1e16
"""From here on Python writes a float with an exponent, and jsonb gives it back as an integer."""
_PLACE_LIMIT = 200


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
    """Why ``value`` cannot be stored as ``jsonb``: the path of each offending part, and what to say after its place."""
    faults = list(_faults(value, ()))
    if not faults and (size := len(json.dumps(value, ensure_ascii=False).encode())) > size_limit:
        faults = [((), f"is {size:,} bytes as JSON, more than {size_limit:,}: store the data and pass a reference")]
    return faults


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


def _faults(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if len(path) > DEPTH_LIMIT:
        yield path, f"is nested more than {DEPTH_LIMIT} levels deep: make it flatter"
        return
    match value:
        case None | bool():
            pass
        case str():
            if fault := text_fault(value):
                yield path, fault
        case int():
            if abs(value) >= _INTEGER_LIMIT:
                yield path, _refusal("a number of more than 1,000 digits", "a text")
        case float():
            if not math.isfinite(value):
                name = (
                    "NaN" if math.isnan(value) else f"{value:+}".replace("+inf", "Infinity").replace("inf", "Infinity")
                )
                yield path, _refusal(name, "null or a text")
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _faults(item, (*path, index))
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    yield path, f'the key {key!r} is not text: write "{key}"'
                    continue
                if fault := text_fault(key):
                    yield (*path, key), f"key {fault}"
                yield from _faults(item, (*path, key))
        case _:
            yield path, _refusal(f"a value of type {type(value).__name__}", _instead(value))


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
