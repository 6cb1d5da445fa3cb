"""Pure decisions: no I/O, no clock reading, no logging, no psycopg. Start with ``models`` and ``time.occurrences``.

Rules become dates in ``time``; ``definitions`` reads and compares files, ``ledger`` says what is expected and missing,
and ``jobs`` is about single jobs.
"""
