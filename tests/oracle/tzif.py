"""Every change of the clock the ``tzdata`` package knows until 2037.

Read from its files (RFC 9636); where a file ends in a yearly rule, the days after its last change are looked at one by
one. Nothing of the product is used, so that it can be held against this list.
"""

from __future__ import annotations

import importlib.resources
import struct
import zoneinfo
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

zoneinfo.reset_tzpath(to=[])

LAST = int(datetime(2038, 1, 1, tzinfo=UTC).timestamp())
HEADER = struct.Struct(">4s c 15x 6l")


class Change(NamedTuple):
    """A change of a zone's offset: the UTC second it happens at, and the seconds before and after."""

    zone: str
    at: int
    before: int
    after: int


def zones() -> list[str]:
    """All zone names, links included, but for the one that says that a machine was never set up."""
    listed = (importlib.resources.files("tzdata") / "zones").read_text(encoding="ascii").split()
    return sorted(set(listed) - {"Factory"})


@lru_cache(maxsize=1024)
def data_of(zone: str) -> bytes:
    """The file of a zone."""
    return (importlib.resources.files("tzdata") / "zoneinfo").joinpath(*zone.split("/")).read_bytes()


@lru_cache(maxsize=1)
def originals() -> dict[str, str]:
    """For each zone the first one whose file is the same, byte for byte."""
    first: dict[bytes, str] = {}
    return {zone: first.setdefault(data_of(zone), zone) for zone in zones()}


@lru_cache(maxsize=1024)
def changes(zone: str) -> list[Change]:
    """The changes of one zone in order; those in name or daylight flag only are left out."""
    data = data_of(zone)
    version, old = HEADER.unpack_from(data)[1], HEADER.unpack_from(data)[2:]
    assert version >= b"2"
    position = HEADER.size + size(old, 4)
    counts = HEADER.unpack_from(data, position)[2:]
    times, types = counts[3:5]
    position += HEADER.size
    instants = struct.unpack_from(f">{times}q", data, position)
    indices = data[position + 8 * times : position + 9 * times]
    offsets = [struct.unpack_from(">l", data, position + 9 * times + 6 * index)[0] for index in range(types)]
    found = []
    offset = offsets[0]
    for at, index in zip(instants, indices, strict=True):
        if offsets[index] != offset:
            found.append(Change(zone, at, offset, offsets[index]))
        offset = offsets[index]
    yearly_rule = data[position + size(counts, 8) :]
    return found + (later_changes(zone, instants[-1] if instants else 0) if b"," in yearly_rule else [])


def later_changes(zone: str, after: int) -> list[Change]:
    """The changes after that second, which only the rule at the end of the file tells."""
    place = ZoneInfo(zone)
    found = []
    for day in range(after + 1, LAST, 86_400):
        low, high = day, day + 86_400
        before, end = (offset_at(place, second) for second in (low, high))
        if before == end:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset_at(place, middle) == before else (low, middle)
        found.append(Change(zone, high, before, end))
    return found


def offset_at(place: ZoneInfo, second: int) -> int:
    """Seconds the clock of a zone is ahead of UTC."""
    offset = datetime.fromtimestamp(second, place).utcoffset()
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


def size(counts: tuple[int, ...], time_size: int) -> int:
    """Bytes of a data block with these counts."""
    is_utc, is_standard, leaps, times, types, names = counts
    return times * (time_size + 1) + types * 6 + names + leaps * (time_size + 4) + is_standard + is_utc
