"""Pure decisions: no I/O, no clock reading, no logging, no psycopg. Start with ``models`` and ``time.occurrences``."""
