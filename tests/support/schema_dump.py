"""``sql/schema.sql``: the migrated schema as columns, constraints and indexes, committed so that drift is seen.

``python -m tests.support.schema_dump`` writes it, with ``--check DSN`` it is compared with a migrated database. Made
from the catalogue, in a fixed order, so that it does not depend on the server's release.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.cluster import available_servers
from tests.support.database import TEMPLATE, Servers, connect

FILE = Path(__file__).parents[2] / "sql" / "schema.sql"

_TABLES = """
    select c.relname, obj_description(c.oid, 'pg_class'), c.reloptions::text
    from pg_class c where c.relnamespace = 'sched'::regnamespace and c.relkind = 'r' order by 1
"""
_COLUMNS = """
    select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           case when a.attidentity <> '' then 'identity' else pg_get_expr(d.adbin, d.adrelid) end
    from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = ('sched.' || %s)::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
_CONSTRAINTS = """
    select conname, pg_get_constraintdef(oid) from pg_constraint
    where conrelid = ('sched.' || %s)::regclass and contype <> 'n' order by conname collate "C"
"""
_INDEXES = """
    select pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = ('sched.' || %s)::regclass
      and not exists (select from pg_constraint k where k.conindid = i.indexrelid) order by c.relname collate "C"
"""


def schema_text(dsn: str) -> str:
    """The dump of the schema in that database."""
    lines = ["-- The migrated schema, for reading and for noticing drift. Written by `make schema`; do not edit."]
    with connect(dsn) as db:
        for table, comment, options in db.execute(_TABLES).fetchall():
            lines += [
                "",
                f"-- {comment}" if comment else "--",
                f"table sched.{table}{f' with {options}' if options else ''}",
            ]
            for name, kind, is_required, default in db.execute(_COLUMNS, (table,)).fetchall():
                suffix = f"{' not null' if is_required else ''}{f' default {default}' if default else ''}"
                lines.append(f"  {name} {kind}{suffix}")
            lines += [f"  constraint {name} {text}" for name, text in db.execute(_CONSTRAINTS, (table,)).fetchall()]
            lines += [f"  {row[0]}" for row in db.execute(_INDEXES, (table,)).fetchall()]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write or compare; 1 when the committed dump differs."""
    if not arguments:
        servers = Servers()
        try:
            FILE.write_text(schema_text(servers.get(next(iter(available_servers()))).dsn(TEMPLATE)), encoding="utf-8")
        finally:
            servers.close()
        return 0
    if FILE.exists() and FILE.read_text(encoding="utf-8") == schema_text(arguments[-1]):
        return 0
    print('sql/schema.sql is not what the migrations make; run "make schema"')
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
