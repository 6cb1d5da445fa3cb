"""Jobs whose JSON Python cannot read, as SQL can write it: they end with a sentence, the others of their claim run."""

from __future__ import annotations

import psycopg
import pytest

from scheduler.handlers import HandlerRegistry, Job
from tests.support.cli import sched
from tests.support.working import drain, enqueue, job_row

LONG_NUMBER = f'{{"n": {"9" * 5000}}}'
DEEP = '{"a": ' * 5000 + "1" + "}" * 5000


def write(dsn: str, job_id: int, column: str, text: str) -> None:
    """What an application does that writes to the table itself."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"update sched.jobs set {column} = %s::jsonb where id = %s", (text, job_id))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            LONG_NUMBER,
            "cannot be read: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits",
        ),
        (DEEP, "cannot be read: nested too deeply"),
    ],
    ids=["long number", "deep"],
)
@pytest.mark.parametrize("column", ["payload", "run"])
def test_a_job_that_cannot_be_read_is_dead_and_the_others_of_its_claim_run(
    database: str, column: str, text: str, why: str
) -> None:
    registry = HandlerRegistry()

    @registry.handler("plain")
    def plain(job: Job) -> None:
        pass

    _, bad, _ = (enqueue(database, "plain") for _ in range(3))
    write(database, bad, column, text)
    result = drain(database, registry)
    assert (result.succeeded, result.discarded) == (2, 1)
    with pytest.raises((ValueError, RecursionError)):
        job_row(database, bad)
    shown = sched("jobs", "show", str(bad), "--json", "--dsn", database).document
    assert (shown["status"], shown["attempts"][0]["outcome"]) == ("dead", "discarded")
    assert shown[column] == why
    assert shown["last_error"] == (
        f'its {column} {why}; correct it in sched.jobs, then "sched jobs retry {bad}" lets the job run'
    )


def test_a_job_that_was_corrected_runs(database: str) -> None:
    registry = HandlerRegistry()
    registry.handler("plain")(lambda job: job.payload)
    job_id = enqueue(database, "plain")
    write(database, job_id, "payload", LONG_NUMBER)
    assert drain(database, registry).discarded == 1
    write(database, job_id, "payload", '{"n": 1e400}')
    assert sched("jobs", "retry", str(job_id), "--dsn", database).code == 0
    assert drain(database, registry).succeeded == 1
    assert sched("jobs", "show", str(job_id), "--dsn", database).code == 0
