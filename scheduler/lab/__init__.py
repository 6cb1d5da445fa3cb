"""The lab: experiments that reproduce the measurements the design rests on, on any database (``sched bench lab``).

Each experiment is a module with one function that measures and returns a ``Finding``: its tables and charts, and in
words what they show. ``run.py`` runs them, ``schema.py`` gives them a schema of their own, ``report.py`` and
``charts.py`` write down what came out. The naive ways to claim a job exist only here, in ``strategies.py``.

The lab lies above services and below interfaces. It measures the database itself, so it has statements of its own
(``statements.sql``) and one module that imports psycopg; docs/decisions/0009 says why.
"""
