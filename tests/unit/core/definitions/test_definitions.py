"""Loading definition files: the example of the design, defaults, calendars, and what is refused, with its place."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from scheduler.core.definitions.files import timings
from scheduler.core.definitions.files.named_calendars import holiday_dates
from scheduler.core.models import (
    EPOCH,
    At,
    CalendarRule,
    Catchup,
    CatchupPolicy,
    Cron,
    Definition,
    DefinitionSet,
    DstRule,
    Every,
    ExcludedDays,
    FinalFailurePolicy,
    GapRule,
    Limit,
    OverlapPolicy,
    RepeatRule,
    RetryPolicy,
    Rrule,
    Shift,
    Timing,
)
from scheduler.errors import DefinitionError
from scheduler.services.definitions import load_definitions

TODAY = date(2026, 11, 30)

Load = Callable[..., DefinitionSet]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes files below ``schedules/`` and loads that folder by its relative name."""
    monkeypatch.chdir(tmp_path)
    folder = Path("schedules")
    folder.mkdir()

    def write_and_load(text: str | None = None, **files: str) -> DefinitionSet:
        for name, content in {**({"etl": text} if text is not None else {}), **files}.items():
            (folder / f"{name}.yaml").write_bytes(content.encode())
        return load_definitions(folder, today=TODAY)

    return write_and_load


def one(load: Load, fields: str, head: str = "") -> Definition:
    """The single schedule ``a`` with ``fields``, one on each line."""
    return load(document(fields, head)).schedules["a"]


def document(fields: str, head: str = "") -> str:
    lines = list(fields.strip("\n").splitlines())
    return f"version: 1\n{head}schedules:\n  a:\n" + "".join(f"    {line}\n" for line in lines)


def refused(load: Load, text: str | None = None, **files: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        load(text, **files)
    return [str(problem) for problem in caught.value.problems]


FULL = """\
version: 1
owner: data-team
defaults: {timezone: Europe/Berlin, queue: default, retry: {max_attempts: 5}}
calendars:
  de-holidays: {holidays: DE-BE}
limits:
  openai: {concurrency: 4}
schedules:
  daily-ingest:
    description: Pull yesterday's orders
    cron: "0 2 * * *"
    timezone: Europe/Berlin
    start: 2026-01-01
    end: null
    dst: {gap: run_after, overlap: first}
    calendar: {except: de-holidays, shift: skip}
    jitter: 5m
    job: ingest.daily
    payload: {source: orders}
    idempotency_key: "{schedule}:{local_date}"
    queue: default
    priority: 100
    limit: openai
    timeout: 30m
    retry: {max_attempts: 5, base: 10s, max: 1h, jitter: 0.2}
    catchup: {policy: latest, grace: 2m, max_age: 7d}
    overlap: queue
    finish_by: 4h
    on_final_failure: continue
    renamed_from: ingest
    tags: [etl]
"""


def test_the_example_of_the_design_loads_field_by_field(load: Load) -> None:
    loaded = load(FULL)
    definition = loaded.schedules["daily-ingest"]
    timing = definition.timing
    assert timing.calendar is not None
    assert replace(definition, timing=replace(timing, calendar=None)) == Definition(
        name="daily-ingest",
        owner="data-team",
        description="Pull yesterday's orders",
        timing=replace(
            timing,
            name="daily-ingest",
            rule=Cron(expression="0 2 * * *"),
            timezone="Europe/Berlin",
            dst=DstRule(gap=GapRule.RUN_AFTER, overlap=RepeatRule.FIRST),
            start=datetime(2025, 12, 31, 23, 0, tzinfo=UTC),
            end=None,
            calendar=None,
            jitter=timedelta(minutes=5),
        ),
        job_type="ingest.daily",
        payload={"source": "orders"},
        idempotency_key="{schedule}:{local_date}",
        queue="default",
        priority=100,
        limit="openai",
        timeout=timedelta(minutes=30),
        retry=RetryPolicy(max_attempts=5, base=timedelta(seconds=10), max_delay=timedelta(hours=1), jitter=0.2),
        catchup=Catchup(policy=CatchupPolicy.LATEST, grace=timedelta(minutes=2), max_age=timedelta(days=7)),
        overlap=OverlapPolicy.QUEUE,
        finish_by=timedelta(hours=4),
        on_final_failure=FinalFailurePolicy.CONTINUE,
        renamed_from="ingest",
        tags=("etl",),
        file="etl.yaml",
    )
    assert loaded.limits == {"openai": Limit(key="openai", owner="data-team", concurrency=4)}
    assert loaded.owners == {"data-team"}
    assert timing.calendar.shift is Shift.SKIP
    assert timing.calendar.known_until == date(2028, 12, 31)
    assert timing.calendar.source is not None and timing.calendar.source.startswith("holidays 0.")
    (berlin,) = timing.calendar.excluded
    assert berlin.name == "de-holidays"
    assert date(2027, 3, 8) in berlin.dates and date(2027, 12, 25) in berlin.dates


def test_what_is_left_out_has_the_documented_default(load: Load) -> None:
    definition = one(load, 'cron: "0 2 * * *"\ntimezone: UTC\njob: ingest')
    assert definition == Definition(
        name="a", owner="default", timing=definition.timing, job_type="ingest", file="etl.yaml"
    )
    assert definition.timing.start is None and definition.timing.jitter == timedelta(0)


def test_defaults_are_merged_key_by_key_and_null_takes_one_away(load: Load) -> None:
    head = """\
defaults:
  timezone: Europe/Berlin
  retry: {max_attempts: 3, base: 1m}
  catchup: {policy: all, grace: 5m}
  dst: {gap: skip}
  timeout: 30m
  tags: [shared]
"""
    definition = one(
        load,
        """
cron: "0 2 * * *"
job: ingest
retry: {max: 2h}
catchup: {grace: 10m}
dst: {overlap: last}
timeout: null
tags: [own]
""",
        head,
    )
    assert definition.timing.timezone == "Europe/Berlin"
    assert definition.retry == RetryPolicy(max_attempts=3, base=timedelta(minutes=1), max_delay=timedelta(hours=2))
    assert definition.catchup == Catchup(policy=CatchupPolicy.ALL, grace=timedelta(minutes=10))
    assert definition.timing.dst == DstRule(gap=GapRule.SKIP, overlap=RepeatRule.LAST)
    assert definition.timeout is None
    assert definition.tags == ("own",)


def test_defaults_and_owner_hold_for_their_file_only(load: Load) -> None:
    loaded = load(
        a="version: 1\nowner: team-a\ndefaults: {queue: fast}\nschedules: {one: {every: 1h, job: x}}",
        b="version: 1\nschedules: {two: {every: 1h, job: x}}",
    )
    assert [(d.name, d.owner, d.queue, d.file) for d in loaded.schedules.values()] == [
        ("one", "team-a", "fast", "a.yaml"),
        ("two", "default", "default", "b.yaml"),
    ]
    assert loaded.owners == {"team-a", "default"}


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ('cron: "0 2 * * *"', Cron(expression="0 2 * * *")),
        ("cron: 0 0 * * *", Cron(expression="0 0 * * *")),
        ("cron: H 2 * * mon-fri", Cron(expression="H 2 * * mon-fri")),
        ('cron: "@daily"', Cron(expression="@daily")),
        ("every: 90s", Every(interval=timedelta(seconds=90), anchor=EPOCH)),
        (
            "every: 6h\nanchor: 2026-01-01T00:00:00+02:00",
            Every(interval=timedelta(hours=6), anchor=datetime(2025, 12, 31, 22, tzinfo=UTC)),
        ),
        ("at: 2026-05-01T09:00", At(moments=(datetime(2026, 5, 1, 9),))),  # noqa: DTZ001
        (
            "at: [2026-05-01, 2026-05-02 09:30:15, 2026-05-03T09:00:00Z]",
            At(
                moments=(
                    datetime(2026, 5, 1),  # noqa: DTZ001
                    datetime(2026, 5, 2, 9, 30, 15),  # noqa: DTZ001
                    datetime(2026, 5, 3, 9, tzinfo=UTC),
                )
            ),
        ),
    ],
)
def test_each_kind_of_rule_is_read(load: Load, fields: str, rule: object) -> None:
    assert one(load, f"{fields}\ntimezone: Europe/Berlin\njob: x").timing.rule == rule


def test_an_rrule_keeps_its_lines(load: Load) -> None:
    fields = "rrule: |\n  DTSTART:20260101T090000\n  RRULE:FREQ=WEEKLY;BYDAY=MO\ntimezone: Europe/Berlin\njob: x"
    assert one(load, fields).timing.rule == Rrule(text="DTSTART:20260101T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO")


@pytest.mark.parametrize(
    ("zone", "text", "instant"),
    [
        ("Europe/Berlin", "2026-07-01", "2026-06-30T22:00:00+00:00"),
        ("Europe/Berlin", "2026-07-01T08:30", "2026-07-01T06:30:00+00:00"),
        ("Europe/Berlin", "2026-07-01 08:30:15", "2026-07-01T06:30:15+00:00"),
        ("Europe/Berlin", "2026-07-01T08:30:00Z", "2026-07-01T08:30:00+00:00"),
        ("Europe/Berlin", "2026-07-01T08:30:00-05:00", "2026-07-01T13:30:00+00:00"),
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T01:00:00+00:00"),
        ("Asia/Beirut", "2026-03-29", "2026-03-28T22:00:00+00:00"),
        ("America/Havana", "2026-11-01", "2026-11-01T04:00:00+00:00"),
    ],
)
def test_start_is_read_in_the_zone_of_the_schedule(load: Load, zone: str, text: str, instant: str) -> None:
    definition = one(load, f"every: 1h\nstart: {text}\ntimezone: {zone}\njob: x")
    assert definition.timing.start == datetime.fromisoformat(instant)


@pytest.mark.parametrize(
    ("fields", "job_type", "run"),
    [
        ("run: {shell: echo hi}", "run.shell", {"script": "echo hi"}),
        ("run: {shell: [echo, hi]}", "run.shell", {"command": ["echo", "hi"]}),
        (
            "run: {shell: {command: [x], env: {TOKEN: {from_env: MY_TOKEN}, MODE: fast}}}",
            "run.shell",
            {"command": ["x"], "env": {"TOKEN": {"from_env": "MY_TOKEN"}, "MODE": "fast"}},
        ),
        ("run: {http: https://example.org/hook}", "run.http", {"url": "https://example.org/hook", "method": "GET"}),
        (
            "run: {http: {url: {from_env: HOOK}, method: put, headers: {Accept: text/plain}, body: {a: [1]}}}",
            "run.http",
            {"url": {"from_env": "HOOK"}, "method": "PUT", "headers": {"Accept": "text/plain"}, "body": {"a": [1]}},
        ),
        (
            "run: {http: {url: https://example.org, body: text}}",
            "run.http",
            {"url": "https://example.org", "method": "POST", "body": "text"},
        ),
        ("run: {sql: select 1}", "run.sql", {"text": "select 1"}),
        (
            "run: {sql: {text: call refresh(%(day)s), dsn_env: REPORTS, parameters: {day: 7}}}",
            "run.sql",
            {"text": "call refresh(%(day)s)", "dsn_env": "REPORTS", "parameters": {"day": 7}},
        ),
    ],
)
def test_run_becomes_a_job_type_and_its_settings(load: Load, fields: str, job_type: str, run: object) -> None:
    definition = one(load, f"every: 1h\n{fields}")
    assert (definition.job_type, definition.run) == (job_type, {job_type.removeprefix("run."): run})


CALENDARS = """\
calendars:
  christmas: {dates: [2026-12-24, 2026-12-25]}
  weekends: {weekdays: [sat, sunday]}
  both: [christmas, weekends]
  all: {calendars: [both], dates: [2026-12-31]}
"""


def test_a_union_keeps_the_names_of_its_members(load: Load) -> None:
    definition = one(load, "every: 1h\njob: x\ncalendar: {except: all, shift: next}", CALENDARS)
    assert definition.timing.calendar == CalendarRule(
        excluded=(
            ExcludedDays(name="all", dates=frozenset({date(2026, 12, 31)})),
            ExcludedDays(name="christmas", dates=frozenset({date(2026, 12, 24), date(2026, 12, 25)})),
            ExcludedDays(name="weekends", weekdays=frozenset({5, 6})),
        ),
        shift=Shift.NEXT,
    )


def test_several_calendars_can_be_excepted(load: Load) -> None:
    definition = one(load, "every: 1h\njob: x\ncalendar: {except: [weekends, christmas]}", CALENDARS)
    assert definition.timing.calendar is not None
    assert [days.name for days in definition.timing.calendar.excluded] == ["weekends", "christmas"]


def test_calendars_and_limits_are_shared_by_the_files_of_an_owner(load: Load) -> None:
    loaded = load(
        a="version: 1\nowner: t\nschedules: {one: {every: 1h, job: x, limit: api, calendar: {except: free}}}",
        b="version: 1\nowner: t\ncalendars: {free: {weekdays: [sat]}}\nlimits: {api: {concurrency: 2}}",
    )
    assert loaded.schedules["one"].limit == "api"
    assert loaded.limits["api"].concurrency == 2


def test_holidays_reach_back_to_a_start_in_the_past(load: Load) -> None:
    head = "calendars: {de: {holidays: DE}}\n"
    early = one(load, "every: 1h\njob: x\nstart: 2019-06-01T00:00:00Z\ncalendar: {except: de}", head)
    assert early.timing.calendar is not None
    assert date(2019, 12, 25) in early.timing.calendar.excluded[0].dates
    late = one(load, "every: 1h\njob: x\ncalendar: {except: de}", head)
    assert late.timing.calendar is not None
    assert min(late.timing.calendar.excluded[0].dates) == date(2025, 1, 1)
    assert max(late.timing.calendar.excluded[0].dates) == date(2028, 12, 26)


def test_a_missing_holidays_package_is_named_with_the_extra(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    holiday_dates.cache_clear()
    assert refused(load, "version: 1\ncalendars: {de: {holidays: DE-HH}}\nschedules: {}") == [
        "schedules/etl.yaml:2:17: calendars.de: holidays: needs the holidays package: "
        "pip install 'sched-pg[holidays]', or list dates"
    ]


def test_an_empty_folder_is_an_empty_set(tmp_path: Path) -> None:
    assert load_definitions(tmp_path, today=TODAY) == DefinitionSet(schedules={}, limits={}, owners=frozenset())


def test_files_are_read_below_the_folder_by_both_suffixes_and_hidden_ones_are_not(load: Load) -> None:
    for path in ("z.yml", "sub/deep/a.YAML", ".hidden.yaml", ".git/x.yaml", "notes.txt"):
        file = Path("schedules", path)
        file.parent.mkdir(parents=True, exist_ok=True)
        name = path.strip(".").replace("/", "-").lower()
        file.write_text(f"version: 1\nschedules: {{{name}: {{every: 1h, job: x}}}}")
    assert [definition.file for definition in load().schedules.values()] == ["sub/deep/a.YAML", "z.yml"]


def test_a_folder_mounted_as_links_is_read_once(load: Load) -> None:
    Path("schedules/..2026").mkdir()
    Path("schedules/..2026/etl.yaml").write_text("version: 1\nschedules: {a: {every: 1h, job: x}}")
    Path("schedules/..data").symlink_to("..2026")
    Path("schedules/etl.yaml").symlink_to("..data/etl.yaml")
    assert [definition.file for definition in load().schedules.values()] == ["etl.yaml"]


def test_a_link_to_a_folder_above_does_not_loop(load: Load) -> None:
    Path("schedules/again").symlink_to("..")
    assert list(load("version: 1\nschedules: {a: {every: 1h, job: x}}").schedules) == ["a"]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.yaml").touch()
    for name, message in (("nope", "no such folder"), ("file.yaml", "is a file")):
        with pytest.raises(DefinitionError, match=f"^{name}: {message}"):
            load_definitions(Path(name), today=TODAY)


BASE = 'cron: "0 2 * * *"\ntimezone: Europe/Berlin\njob: x\n'


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            BASE.replace("Berlin", "Berln"),
            '5:15: a.timezone: "Europe/Berln" is not an IANA zone; did you mean "Europe/Berlin"?',
        ),
        (BASE + "crn: 5", "7:5: a.crn: is not a known key; did you mean cron?"),
        (BASE + "task: x", "7:5: a.task: is not a known key: write `job:`"),
        (BASE + "enabled: false", "7:5: a.enabled: is not a known key: a schedule in a file is active; "),
        (BASE + "timeout: 90", "7:14: a.timeout: 90 has no unit: write 90s, 90m or 90h"),
        (BASE + 'timeout: "90"', "7:14: a.timeout: 90 has no unit: write 90s, 90m or 90h"),
        (BASE + "timeout: 5 minutes", '7:14: a.timeout: "5 minutes" is not a duration: write 5m'),
        (BASE + "timeout: PT30M", '7:14: a.timeout: "PT30M" is not a duration: write 30m'),
        (BASE + "timeout: 0s", "7:14: a.timeout: must be longer than zero"),
        (BASE + "overlap: sometimes", '7:14: a.overlap: "sometimes" is not one of queue, allow, skip, queue_one, '),
        (BASE + "overlap: quue", '7:14: a.overlap: "quue" is not one of queue, allow, skip, queue_one, '),
        (BASE + "priority: high", '7:15: a.priority: "high" is not a whole number: write one from -32,768 to 32,767'),
        (BASE + 'priority: "5"', '7:15: a.priority: "5" is text: write the number without quotes'),
        (BASE + "priority: 5.5", "7:15: a.priority: 5.5 is not a whole number"),
        (BASE + "queue: null", "7:12: a.queue: is empty: write a text, or leave the key out"),
        (BASE + "description: 2026", '7:18: a.description: 2026 is not text: write it in quotes, "2026"'),
        (BASE + "payload: [1]", "7:14: a.payload: a list stands here, but a mapping is needed: write {key: value}"),
        (BASE + "retry: {max: 5s}", "7:12: a.retry: base (10s) is longer than max (5s)"),
        (
            BASE + "retry: {max_attempts: 0}",
            "7:27: a.retry.max_attempts: 0 is out of range: write a whole number from 1",
        ),
        (BASE + "retry: {jitter: 3}", "7:21: a.retry.jitter: 3 is not a fraction: write a number from 0 to 1"),
        (BASE + "catchup: {grace: 8d}", "7:14: a.catchup: max_age (7d) must be longer than grace (8d)"),
        (
            BASE + "catchup: latest",
            "7:14: a.catchup: text stands here, but a mapping is needed: write {policy: latest}",
        ),
        (BASE + "catchup: {grace: 0s}", "7:22: a.catchup.grace: must be longer than zero"),
        (
            BASE + "limit: openai",
            '7:12: a.limit: "openai" is not a limit of the owner default; define it under `limits:`',
        ),
        (BASE + "calendar: {except: x}", '7:24: a.calendar.except[0]: "x" is not a calendar of the owner default; '),
        (BASE + "calendar: {shift: next}", "7:5: a.calendar.except: is missing: name the calendar"),
        (BASE + "start: 22:30", '7:12: a.start: "22:30" has no date: '),
        (
            BASE + "start: 2026-02-30",
            '7:12: a.start: "2026-02-30" is not a moment of the calendar: day is out of range',
        ),
        (BASE + "start: 2026", "7:12: a.start: 2026 is not a moment: write 2026-01-31"),
        (
            BASE + "start: 2026-10-25T02:30",
            "7:12: a.start: 2026-10-25T02:30:00 happens twice in Europe/Berlin: "
            "write 2026-10-25T00:30:00Z or 2026-10-25T01:30:00Z",
        ),
        (BASE + "start: 2026-02-01\nend: 2026-01-01", "8:10: a.end: 2025-12-31T23:00:00Z is not after start "),
        (BASE + "anchor: 2026-01-01", "7:5: a.anchor: counts only for `every:`"),
        (BASE + "every: 5m", "7:5: a.every: stands beside cron: keep exactly one of them"),
        (BASE + "run: {shell: x}", "7:5: a.run: stands beside job: keep one of the two"),
        (BASE + "renamed_from: a", "7:19: a.renamed_from: is the schedule's own name"),
        (BASE + "tags: etl", "7:11: a.tags: text stands here, but a list is needed: write [a, b]"),
        (BASE + 'idempotency_key: "{schedule}"', '7:22: a.idempotency_key: "{schedule}" is the same for every date: '),
        (BASE + 'idempotency_key: "{dat}"', "7:22: a.idempotency_key: {dat} is not a placeholder: "),
        (
            BASE + 'idempotency_key: "{local_dat}"',
            "7:22: a.idempotency_key: {local_dat} is not a placeholder: did you mean",
        ),
        (
            BASE + 'idempotency_key: "{local_date}}"',
            "7:22: a.idempotency_key: has a brace that belongs to no placeholder",
        ),
        ("timezone: UTC\njob: x", "3:3: a: needs exactly one of cron, every, rrule, at"),
        ("every: 5m", "3:3: a: needs `job:` (a registered handler) or `run:` with shell, http or sql"),
        ('cron: "0 2 * * *"\njob: x', '3:3: a.timezone: is missing: write an IANA name like "Europe/Berlin", '),
        ('cron: "0 25 * * *"\ntimezone: UTC\njob: x', '4:11: a.cron: "0 25 * * *": hour "25" is outside 0-23'),
        ("every: 1500ms\njob: x", "4:12: a.every: "),
        ("every: 5m\njob: run.shell", '5:10: a.job: "run.shell" is built in: write `run: {shell: ...}`'),
        ("every: 5m\njob: a b", '5:10: a.job: "a b" is not a job type'),
        ("every: 5m\nrun: {}", "5:10: a.run: needs exactly one of shell, http, sql: it has none"),
        (
            "every: 5m\nrun: {shell: x, sql: y}",
            "5:10: a.run: needs exactly one of shell, http, sql: it has shell and sql",
        ),
        ("every: 5m\nrun: {shell: [a, 5]}", '5:22: a.run.shell.command[1]: 5 is not text: write it in quotes, "5"'),
        ("every: 5m\nrun: {shell: {env: {}}}", "5:18: a.run.shell: needs either script (text) or command"),
        (
            "every: 5m\nrun: {shell: {script: x, env: {A: {from: B}}}}",
            "5:39: a.run.shell.env.A: a mapping here can only",
        ),
        ("every: 5m\nrun: {http: ftp://x}", '5:17: a.run.http.url: "ftp://x" is not an address: write http:// or'),
        ("every: 5m\nrun: {http: https://u:p@x}", "5:17: a.run.http.url: has a user or password in the address: "),
        ("every: 5m\nrun: {http: {method: get}}", "5:11: a.run.http.url: is missing: write the address to call"),
        ("every: 5m\nrun: {sql: {text: x, dsn: y}}", "5:26: a.run.sql.dsn: is not a known key; did you mean dsn_env?"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(load: Load, fields: str, problem: str) -> None:
    (found,) = refused(load, document(fields))
    assert found.startswith(f"schedules/etl.yaml:{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("schedules: {}", "1:1: version: is missing: write `version: 1` at the top of the file"),
        ("version: 2", "1:10: version: 2 is not a version this program reads: write version: 1"),
        ('version: "1"', '1:10: version: "1" is not a version this program reads: write version: 1'),
        ("- a", "1:1: a list stands here: a definition file begins with `version: 1` and `schedules:`"),
        ("just text", "1:1: text stands here: a definition file begins with"),
        ("version: 1\nschedule: {}", "2:1: schedule: is not a known key; did you mean schedules?"),
        ("version: 1\ncron: x", "2:1: cron: belongs to a schedule: write it below `schedules:`"),
        (
            "version: 1\ndefaults: {cron: x}",
            "2:12: defaults.cron: belongs to a single schedule and cannot be a default",
        ),
        ("version: 1\ndefaults: {queu: x}", "2:12: defaults.queu: is not a known key; did you mean queue?"),
        ("version: 1\nlimits: {x: 4}", "2:13: limits.x: a number stands here, but a mapping is needed: write {concu"),
        ("version: 1\nlimits: {x: {concurrency: 0}}", "2:27: limits.x.concurrency: 0 is out of range"),
        ("version: 1\ncalendars: {x: {}}", "2:16: calendars.x: excludes no day: write {holidays: DE}"),
        ("version: 1\ncalendars: {x: [y]}", '2:17: calendars.x.calendars[0]: "y" is not a calendar of the owner'),
        ("version: 1\ncalendars: {x: [x]}", "2:16: calendars.x: contains itself"),
        ("version: 1\ncalendars: {x: {holidays: QQ}}", '2:16: calendars.x: holidays: "QQ" is not a country'),
        ("version: 1\ncalendars: {x: {holidays: DE-XX}}", '2:16: calendars.x: holidays: "DE" has no region "XX"'),
        ("version: 1\ncalendars: {x: {weekdays: [tu]}}", '2:28: calendars.x.weekdays[0]: "tu" is not a weekday'),
        ("version: 1\ncalendars: {x: {dates: [24.12.]}}", '2:25: calendars.x.dates[0]: "24.12." is not a date'),
        ("version: 1\nschedules: {a: }", "2:13: a: nothing stands here, but a mapping is needed"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(load: Load, text: str, problem: str) -> None:
    (found,) = refused(load, text)
    assert found.startswith(f"schedules/etl.yaml:{problem}")


def test_a_fault_in_the_defaults_is_reported_once_and_where_it_stands(load: Load) -> None:
    text = """\
version: 1
defaults: {timezone: Mars/Base, limit: api, idempotency_key: "{schedule}"}
schedules:
  a: {cron: "0 2 * * *", job: x}
  b: {cron: "0 3 * * *", job: x}
"""
    assert refused(load, text) == [
        'schedules/etl.yaml:2:22: defaults.timezone: "Mars/Base" is not an IANA zone; '
        'write a name such as "Europe/Berlin" or "UTC"',
        'schedules/etl.yaml:2:40: defaults.limit: "api" is not a limit of the owner default; define it under `limits:`',
        'schedules/etl.yaml:2:62: defaults.idempotency_key: "{schedule}" is the same for every date: '
        "add {logical_date} or {local_date}",
    ]


def test_all_problems_of_all_files_come_at_once_in_file_order(load: Load) -> None:
    problems = refused(
        load,
        b="version: 1\nschedules:\n"
        "  one: {cron: 0 25 * * *, timezone: Nowhere, timeout: 5, job: x, tags: [5]}\n"
        "  one: {}",
        a="version: 1\nschedules: [",
        c="version: 1\nschedules: {two: {every: 1h, job: x, limit: api, crn: 1}}",
    )
    assert [problem.split(": ")[0] for problem in problems] == [
        "schedules/a.yaml:2:12",
        "schedules/b.yaml:3:15",
        "schedules/b.yaml:3:37",
        "schedules/b.yaml:3:55",
        "schedules/b.yaml:3:73",
        "schedules/b.yaml:4:3",
        "schedules/c.yaml:2:50",
    ]


def test_a_name_that_an_unreadable_file_may_define_is_not_called_unknown(load: Load) -> None:
    problems = refused(
        load, a="limits: {api: {concurrency: 1}", b="version: 1\nschedules: {two: {every: 1h, job: x, limit: api}}"
    )
    assert len(problems) == 1 and problems[0].startswith("schedules/a.yaml:")


def test_the_limit_of_another_owner_cannot_be_used_and_keys_are_unique(load: Load) -> None:
    assert refused(
        load,
        a="version: 1\nowner: a\nlimits: {api: {concurrency: 1}}",
        b="version: 1\nowner: b\nlimits: {api: {concurrency: 2}}\nschedules: {x: {every: 1h, job: x, limit: api}}",
    ) == [
        "schedules/b.yaml:3:10: limits.api: is already defined at schedules/a.yaml:3:10: "
        "names are unique across all files, so rename one",
        'schedules/b.yaml:4:43: x.limit: "api" is not a limit of the owner b; define it under `limits:`',
    ]


def test_a_rename_from_a_schedule_that_still_stands_is_refused(load: Load) -> None:
    text = "version: 1\nschedules:\n  old: {every: 1h, job: x}\n  new: {every: 1h, job: x, renamed_from: old}"
    assert refused(load, text) == [
        'schedules/etl.yaml:4:42: new.renamed_from: "old" still stands at schedules/etl.yaml:3:3: '
        "rename that schedule instead of adding one"
    ]


@pytest.mark.parametrize(
    ("fields", "is_fine"),
    [
        ('cron: "0 2 * * *"\ntimezone: Europe/Berlin', True),
        ('cron: "0 2 * * *"\ntimezone: Europe/Berlin\ndst: {overlap: both}', False),
        ('cron: "0 1 * * *"\ntimezone: Europe/Berlin\ndst: {overlap: both}', True),
        ('cron: "0 2,14 * * *"\ntimezone: Europe/Berlin', False),
        ('cron: "0 0,12 29 2 *"\ntimezone: UTC', False),
        ('cron: "*/90 2 * * *"\ntimezone: UTC', True),
        ('cron: "0 */24 * * *"\ntimezone: America/Havana', False),
        ("every: 24h\ntimezone: UTC", True),
        ("every: 24h\ntimezone: Europe/Berlin\nanchor: 2026-01-01T23:00:00Z", True),
        ("every: 24h\ntimezone: Europe/Berlin\nanchor: 2026-01-01T22:30:00Z", False),
        ("at: [2026-12-01T08:00, 2026-12-02T08:00]\ntimezone: UTC", True),
        ("at: [2026-12-01T08:00, 2026-12-01T09:00]\ntimezone: UTC", False),
    ],
)
def test_a_local_date_in_the_key_needs_one_date_a_day(load: Load, fields: str, is_fine: bool) -> None:
    text = document(f'{fields}\njob: x\nidempotency_key: "{{schedule}}:{{local_date}}"')
    if is_fine:
        assert "a" in load(text).schedules
    else:
        (problem,) = refused(load, text)
        assert "idempotency_key: two dates stand for the local day" in problem


def test_a_local_date_beside_the_instant_tells_all_dates_apart(load: Load) -> None:
    definition = one(load, 'every: 1h\njob: x\nidempotency_key: "{local_date} {logical_date}"')
    assert definition.idempotency_key == "{local_date} {logical_date}"


def test_shared_expressions_are_compiled_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Timing] = []
    monkeypatch.setattr(timings, "compile_timing", compiled.append)
    lines = [f'  job-{n:03}: {{cron: "{n % 5} 2 * * *", timezone: Europe/Berlin, job: x}}' for n in range(100)]
    assert len(load("version: 1\nschedules:\n" + "\n".join(lines)).schedules) == 100
    assert len(compiled) == 5


def test_the_garbage_collector_is_on_again_after_loading(load: Load) -> None:
    assert gc.isenabled()
    refused(load, "version: 2")
    assert gc.isenabled()
