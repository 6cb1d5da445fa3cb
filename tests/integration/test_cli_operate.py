"""jobs, schedules and enqueue, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import DAILY, sched, write_definitions
from tests.support.database import connect

REPEATED = """\
  often:
    cron: "30 * * * *"
    timezone: Europe/Berlin
    start: 2024-01-01
    job: test.noop
"""


@pytest.fixture
def applied(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with two schedules applied, named by SCHED_DSN; the operator is ``ann``."""
    monkeypatch.setenv("SCHED_DSN", database)
    monkeypatch.setenv("SCHED_ACTOR", "ann")
    assert sched("apply", str(write_definitions(tmp_path, DAILY + REPEATED))).code == 0
    return database


def kill_job(database: str, job: int) -> None:
    with connect(database) as connection:
        connection.execute(
            """
            update sched.jobs
            set status = 'dead', completed_at = now(), last_error = 'it broke', attempt_count = 5, waiting_for = null,
                holds_overlap = false, holds_limit = false
            where id = %s
            """,
            (job,),
        )


@pytest.mark.usefixtures("applied")
def test_an_enqueued_job_can_be_listed_and_shown() -> None:
    made = sched("enqueue", "mail.send", "--payload", '{"to": "x"}', "--key", "m1", "--json").document
    listed = sched("jobs", "list", "--json").document["jobs"]
    shown = sched("jobs", "show", str(made["job"]), "--json").document

    assert made["created"] is True
    assert [(job["id"], job["job_type"], job["status"]) for job in listed] == [(made["job"], "mail.send", "pending")]
    assert (shown["payload"], shown["idempotency_key"], shown["attempts"]) == ({"to": "x"}, "m1", [])


@pytest.mark.usefixtures("applied")
def test_the_same_key_gives_the_same_job() -> None:
    first = sched("enqueue", "mail.send", "--key", "m1", "--json").document
    second = sched("enqueue", "mail.send", "--key", "m1", "--json").document

    assert second == {"job": first["job"], "created": False}


@pytest.mark.usefixtures("applied")
def test_a_job_for_later_is_scheduled() -> None:
    made = sched("enqueue", "mail.send", "--at", "2199-01-01T00:00:00Z", "--json").document

    shown = sched("jobs", "show", str(made["job"]), "--json").document
    assert (shown["status"], shown["available_at"]) == ("scheduled", "2199-01-01T00:00:00Z")


def test_jobs_are_filtered(applied: str) -> None:
    sched("backfill", "--since", "2024-03-01", "--until", "2024-03-03", "--schedule", "daily")
    sched("enqueue", "mail.send", "--queue", "mail")
    kill_job(applied, 1)

    def listed(*filters: str) -> list[int]:
        return [job["id"] for job in sched("jobs", "list", *filters, "--json").document["jobs"]]

    assert listed() == [3, 2, 1]
    assert listed("--status", "dead") == [1]
    assert listed("--schedule", "daily") == [2, 1]
    assert listed("--queue", "mail") == [3]
    assert listed("--limit", "1") == [3]


def test_a_dead_job_is_retried_and_the_retry_recorded(applied: str) -> None:
    sched("enqueue", "mail.send")
    kill_job(applied, 1)

    ended = sched("jobs", "retry", "1", "--reason", "server is back", "--json")

    shown = sched("jobs", "show", "1", "--json").document
    (event,) = [event for event in shown["events"] if event["kind"] == "job_retried"]
    assert (ended.code, ended.document) == (0, {"jobs": [{"id": 1, "outcome": "retried"}]})
    assert (shown["status"], event["actor"], event["reason"]) == ("pending", "ann", "server is back")


@pytest.mark.usefixtures("applied")
def test_a_job_that_needs_no_retry_is_a_finding() -> None:
    sched("enqueue", "mail.send")

    ended = sched("jobs", "retry", "1")

    assert (ended.code, ended.out) == (1, "job 1: pending; it will run without a retry\n")


def test_an_unknown_job_among_several_changes_none(applied: str) -> None:
    sched("enqueue", "mail.send")
    kill_job(applied, 1)

    ended = sched("jobs", "retry", "1", "99")

    assert (ended.code, ended.err) == (2, 'error: there is no job 99; "sched jobs list" shows them\n')
    assert sched("jobs", "show", "1", "--json").document["status"] == "dead"


def test_dead_jobs_are_counted_and_then_retried_by_filter(applied: str) -> None:
    for queue in ("mail", "mail", "other"):
        sched("enqueue", "mail.send", "--queue", queue)
    for job in (1, 2, 3):
        kill_job(applied, job)

    counted = sched("jobs", "retry", "--dead", "--queue", "mail", "--error", "broke", "--dry-run")
    as_json = sched("jobs", "retry", "--dead", "--queue", "mail", "--error", "broke", "--dry-run", "--json")
    retried = sched("jobs", "retry", "--dead", "--queue", "mail", "--error", "broke", "--reason", "mended")
    again = sched("jobs", "retry", "--dead", "--queue", "mail", "--json")

    assert counted.out == "STATUS  JOB        JOBS\ndead    mail.send  2\n"
    assert as_json.document == {
        "matched": 2,
        "found": [{"status": "dead", "job_type": "mail.send", "jobs": 2}],
        "dry_run": True,
        "outcomes": {},
    }
    assert (retried.code, retried.out) == (0, "2 jobs retried\n")
    assert again.document == {"matched": 0, "found": [], "dry_run": False, "outcomes": {}}
    statuses = [job["status"] for job in sched("jobs", "list", "--json").document["jobs"]]
    assert statuses == ["dead", "pending", "pending"]
    (event,) = sched("jobs", "show", "2", "--json").document["events"]
    assert (event["kind"], event["actor"], event["reason"]) == ("job_retried", "ann", "mended")


def test_more_than_a_thousand_jobs_need_a_yes(applied: str) -> None:
    with connect(applied) as connection:
        connection.execute(
            "insert into sched.jobs (job_type, status, completed_at) "
            "select 'x', 'dead', now() from generate_series(1, 1001)"
        )

    refused = sched("jobs", "retry", "--dead")
    still_dead = sched("status", "--json").document["jobs"]
    bounded = sched("jobs", "retry", "--dead", "--limit", "1000")
    agreed = sched("jobs", "replay", "--status", "dead", "--yes")

    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(
        "error: this would retry 1,001 jobs; add --yes to do it, --dry-run to see what they are"
    )
    assert still_dead["dead"] == 1001
    assert (bounded.code, bounded.out) == (0, "1000 jobs retried\n")
    assert (agreed.code, agreed.out) == (0, "1 job replayed\n")


@pytest.mark.usefixtures("applied")
def test_each_action_works_by_filter() -> None:
    sched("enqueue", "mail.send")
    told = [
        sched("jobs", action, "--job-type", "mail.send").out
        for action in ("hold", "release", "cancel", "replay", "retry")
    ]
    assert told == ["1 job held\n", "1 job released\n", "1 job cancelled\n", "1 job replayed\n", "no jobs match\n"]
    assert sched("jobs", "retry", "--status", "cancelled").out == "1 job retried\n"


@pytest.mark.usefixtures("applied")
def test_a_replay_tells_the_new_job_and_is_a_finding_for_one_that_has_not_ended() -> None:
    sched("enqueue", "mail.send", "--key", "m1")
    sched("enqueue", "mail.send")
    sched("jobs", "cancel", "1")

    ended = sched("jobs", "replay", "1", "2")
    as_json = sched("jobs", "replay", "1", "--reason", "the template was wrong", "--json")

    assert (ended.code, ended.out) == (
        1,
        "job 1: replayed as job 3\njob 2: pending; it can be replayed once it has ended\n",
    )
    assert (as_json.code, as_json.document) == (0, {"jobs": [{"id": 1, "outcome": "replayed", "replay": 4}]})
    new = sched("jobs", "show", "4", "--json").document
    assert (new["replay_of"], new["idempotency_key"], new["origin"]) == (1, "m1#replay-4", "manual")
    assert "the template was wrong  was cancelled, replay 4" in sched("jobs", "show", "1").out


def test_progress_is_listed_and_shown(applied: str) -> None:
    sched("enqueue", "mail.send")
    with connect(applied) as connection:
        (job,) = connection.execute(
            "select id, lease_token from sched.claim(array['default'], gen_random_uuid(), 1, '1 minute')"
        )
        connection.execute(
            "select sched.heartbeat(array[%s]::bigint[], array[%s]::uuid[], '1 minute', array[0.4]::real[], "
            "array['page 40 of 100'])",
            job,
        )

    listed, shown = sched("jobs", "list"), sched("jobs", "show", "1")

    assert "40%: page 40 of 100" in listed.out
    assert "\nprogress          40%: page 40 of 100\n" in shown.out
    assert "progress note" not in shown.out
    document = sched("jobs", "show", "1", "--json").document
    assert (document["progress"], document["progress_note"]) == (0.4, "page 40 of 100")


@pytest.mark.usefixtures("applied")
def test_the_text_of_an_error_cannot_move_the_cursor(applied: str) -> None:
    sched("enqueue", "mail.send")
    kill_job(applied, 1)
    with connect(applied) as connection:
        connection.execute("update sched.jobs set last_error = E'\\x1b[2Jgone\\nsecond line'")

    ended = sched("jobs", "list")

    assert "\\x1b[2Jgone second line" in ended.out
    assert "\x1b" not in ended.out


@pytest.mark.usefixtures("applied")
def test_a_paused_schedule_says_so_until_it_is_resumed() -> None:
    paused = sched("schedules", "pause", "daily", "--keep", "--reason", "source is down", "--json")
    again = sched("schedules", "pause", "daily", "--json")
    listed = sched("schedules", "list", "--json").document["schedules"]
    resumed = sched("schedules", "resume", "daily", "--json")
    twice = sched("schedules", "resume", "daily", "--json")

    (daily,) = [schedule for schedule in listed if schedule["name"] == "daily"]
    outcomes = [ended.document["outcome"] for ended in (paused, again, resumed, twice)]
    assert outcomes == ["paused", "already_paused", "resumed", "not_paused"]
    assert (daily["paused"]["keep"], daily["paused"]["by"], daily["paused"]["reason"]) == (
        True,
        "ann",
        "source is down",
    )


@pytest.mark.usefixtures("applied")
def test_schedules_are_listed_with_their_rule_and_next_date() -> None:
    ended = sched("schedules", "list")

    header, daily, often = ended.out.splitlines()
    assert header.split("  ")[0] == "NAME"
    assert daily.split()[:8] == ["daily", "0", "2", "*", "*", "*", "UTC", "active"]
    assert often.split()[6:8] == ["Europe/Berlin", "active"]


@pytest.mark.usefixtures("applied")
def test_a_triggered_schedule_makes_a_job_without_a_date() -> None:
    ended = sched("schedules", "trigger", "daily", "--json")

    shown = sched("jobs", "show", str(ended.document["job"]), "--json").document
    assert (shown["origin"], shown["logical_date"], shown["schedule"]) == ("manual", None, "daily")


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    "when", ["2024-03-05", "2024-03-05T02:00", "2024-03-05T02:00:00Z", "2024-03-05T03:00:00+01:00"]
)
def test_a_date_is_triggered_once(when: str) -> None:
    first = sched("schedules", "trigger", "daily", "--date", when, "--json").document
    second = sched("schedules", "trigger", "daily", "--date", when, "--json")

    assert (first["outcome"], first["logical_date"]) == ("inserted", "2024-03-05T02:00:00Z")
    assert (second.code, second.document["outcome"]) == (0, "already")


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("name", "when", "said"),
    [
        ("often", "2024-03-05", "2024-03-05 is ambiguous: often has 2024-03-04T23:30:00Z (2024-03-05 00:30 local), "),
        (
            "often",
            "2024-10-27T02:30",
            "2024-10-27T02:30:00 is ambiguous: often has 2024-10-27T00:30:00Z (2024-10-27 02:30 local), "
            "2024-10-27T01:30:00Z (2024-10-27 02:30 local); write one of these instants",
        ),
        (
            "daily",
            "2024-03-05T03:00",
            "daily has no date 2024-03-05T03:00:00; the nearest are 2024-03-05T02:00:00Z, 2024-03-06T02:00:00Z",
        ),
        ("daily", "2023-12-31", "daily has no date 2023-12-31; the nearest are 2024-01-01T02:00:00Z"),
        ("dayly", "2024-03-05", 'there is no schedule "dayly"; did you mean "daily"?'),
        ("daily", "2199-01-01", "2199-01-01T02:00:00Z has not come yet; it will fire by itself"),
    ],
)
def test_a_date_that_is_not_one_is_answered_with_the_candidates(name: str, when: str, said: str) -> None:
    ended = sched("schedules", "trigger", name, "--date", when)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {said}")
    assert sched("jobs", "list", "--json").document == {"jobs": []}
