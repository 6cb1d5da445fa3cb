"""sched: recurring work on PostgreSQL, decided once per logical date. Public names only."""

__version__ = "0.1.0"
