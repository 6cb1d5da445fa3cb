"""A Django application of one file, run as a process of its own: ``python -m tests.support.django_shop DSN``.

Enqueues inside and outside ``transaction.atomic`` and prints what it was told, as JSON. Django keeps its settings per
process, so tests cannot be one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import django
from django.conf import settings
from django.db import connection, connections, transaction
from psycopg.conninfo import conninfo_to_dict

from scheduler import ConfigError, NewJob, enqueue, enqueue_many


def main(dsn: str) -> None:
    """Everything in order; each job's type says how it was made."""
    parts = conninfo_to_dict(dsn)
    settings.configure(
        DEBUG=True,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"],
                "USER": parts["user"],
                "HOST": parts["host"],
                "PORT": parts["port"],
            },
            "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
    )
    django.setup()

    enqueue(connection, "autocommit")  # not connected yet: Django does it now
    with transaction.atomic():
        enqueue(connection, "committed", {"percent": "100 %s"})
        try_and_fail("inner")
        enqueue_many(connection, [NewJob("many"), NewJob("many")])
    try_and_fail("outer")
    with transaction.atomic():
        enqueue(connection.connection, "driver connection")
        with connection.cursor() as cursor:
            enqueue(cursor, "cursor")
    print(json.dumps({"autocommit": connection.get_autocommit(), "sqlite": refusal(connections["file"])}))


def try_and_fail(name: str) -> None:
    """Enqueue in a block that fails; inside another one it is a savepoint."""
    try:
        with transaction.atomic():
            enqueue(connection, name)
            raise LookupError("the order is not valid")
    except LookupError:
        pass


def refusal(unfit: Any) -> str:
    """What is said about a connection to something else."""
    try:
        enqueue(unfit, "x")
    except ConfigError as error:
        return str(error)
    return "accepted"


if __name__ == "__main__":
    main(sys.argv[1])
