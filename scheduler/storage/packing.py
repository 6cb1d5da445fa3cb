"""Columns dumped before the statement that sends them, so that another thread can do that while the server works.

Arrays travel in binary: as text, an array of instants costs the client sixteen times as much. Queries take packed
columns as ``%(name)b``; ``Database.connect`` registers ``PackedDumper``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.adapt import Dumper, PyFormat, Transformer
from psycopg.pq import Format


@dataclass(frozen=True, slots=True)
class Packed:
    """A column as it was dumped. One that is all null has no type, and is text."""

    data: bytes
    oid: int
    format: Format


class PackedDumper(Dumper):
    """Sends what was packed as it is; one dumper a type and format."""

    format = Format.BINARY

    def get_key(self, obj: Packed, format: PyFormat) -> Any:
        return (self.cls, obj.oid, obj.format)

    def upgrade(self, obj: Packed, format: PyFormat) -> PackedDumper:
        dumper = PackedDumper(self.cls)
        dumper.oid, dumper.format = obj.oid, obj.format
        return dumper

    def dump(self, obj: Packed) -> bytes:
        return obj.data


def pack(columns: Mapping[str, list[Any]]) -> dict[str, Packed]:
    """Each column packed, under its name."""
    transformer = Transformer()
    dumped = transformer.dump_sequence(list(columns.values()), [PyFormat.BINARY] * len(columns))
    types, formats = transformer.types, transformer.formats
    assert types is not None and formats is not None
    return {
        name: Packed(bytes(data or b""), oid, form)
        for name, data, oid, form in zip(columns, dumped, types, formats, strict=True)
    }
