"""The reference pages list what the code has: each state, reason, field, setting, function and command, no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from typing import Any, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scheduler.core.definitions.files.model import CalendarModel, FileModel, LimitModel, RunModel, ScheduleModel
from scheduler.core.ledger.gaps import GapKind
from scheduler.core.models import FINAL_STATUSES, JOB_TRANSITIONS, AttemptOutcome, JobStatus, OccurrenceState
from scheduler.core.time.durations import format_duration
from scheduler.interfaces.cli.main import app
from tests.docs.pages import REPOSITORY, codes, page, rows

FUNCTIONS = "\n".join(file.read_text() for file in sorted((REPOSITORY / "sql" / "functions").glob("*.sql")))
STATES = page("docs/reference/states.md")
SQL_API = page("docs/reference/sql-api.md")

CONTRACT = {
    "enqueue", "enqueue_many", "trigger", "claim", "heartbeat", "complete", "fail", "hand_back", "reap", "retry",
    "hold", "release", "cancel", "replay", "steer",
    "fire", "pause", "resume",
}  # fmt: skip


def first_codes(text: str) -> list[str]:
    """What stands in backquotes in the first cell of each row."""
    return [code for row in rows(text) for code in codes(row[0])]


def drawn_transitions(text: str) -> set[tuple[str, str]]:
    """The arrows of a mermaid state diagram, without those from and to its ends."""
    return {
        (source, target) for source, target in re.findall(r"^ *(\S+) --> (\S+) *$", text, re.MULTILINE)
    } - drawn_ends(text)


def drawn_ends(text: str) -> set[tuple[str, str]]:
    return {arrow for arrow in re.findall(r"^ *(\S+) --> (\S+) *$", text, re.MULTILINE) if "[*]" in arrow}


def test_every_job_status_is_explained() -> None:
    assert first_codes(STATES.section("Job").split("```")[0]) == [status.value for status in JobStatus]


def test_the_diagram_shows_exactly_the_allowed_transitions() -> None:
    allowed = {(source.value, target.value) for source, targets in JOB_TRANSITIONS.items() for target in targets}
    for name in ("docs/reference/states.md", "docs/architecture.md"):
        diagram = next(snippet.text for snippet in page(name).snippets if snippet.kind == "mermaid")
        assert drawn_transitions(diagram) == allowed, name


def test_every_transition_says_when_it_happens() -> None:
    told = set()
    for row in rows(STATES.section("Job").split("| transition |")[1]):
        for part in row[0].split(";"):
            sources, _, targets = part.partition(" to ")
            told |= {(source, target) for source in codes(sources) for target in codes(targets)}
    allowed = {(source.value, target.value) for source, targets in JOB_TRANSITIONS.items() for target in targets}
    assert told == allowed


def test_every_final_status_is_called_final() -> None:
    final = {codes(row[0])[0] for row in rows(STATES.section("Job").split("```")[0]) if "final" in row[1]}
    assert final == {status.value for status in FINAL_STATUSES}


def test_every_outcome_state_and_kind_is_explained() -> None:
    assert first_codes(STATES.section("Attempt")) == [outcome.value for outcome in AttemptOutcome]
    states = STATES.section("Occurrence").split("| transition |")[0]
    assert first_codes(states) == [state.value for state in OccurrenceState]
    assert first_codes(STATES.section("Gap")) == [kind.value for kind in GapKind]


def test_every_reason_of_an_occurrence_is_explained() -> None:
    told = set(first_codes(STATES.section("Occurrence").split("| reason |", 1)[1].join(("|a|\n|---|\n", ""))))
    fates = FUNCTIONS.split("function sched.fates(")[1].split("$$;")[0]
    plan = FUNCTIONS.split("function sched.plan(")[1].split("$$;")[0]
    decided = set(re.findall(r"(?:then|else) '([a-z_]+)'", fates))
    planned = set(re.findall(r"(?:then|else) '([a-z_]+)'", plan)) - {state.value for state in OccurrenceState}
    assert told - {"backfill", "error"} == decided | planned


def signatures(text: str) -> dict[str, str]:
    """Functions and procedures by name: what stands between ``create or replace`` and the language."""
    found = re.findall(
        r"create or replace (?:function|procedure) sched\.(\w+)(\(.*?)\s*(?:\blanguage\b)", text, re.DOTALL
    )
    return {name: normalized(rest) for name, rest in found}


def normalized(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_every_function_of_the_contract_is_shown_with_its_signature() -> None:
    shown = {}
    for snippet in SQL_API.snippets:
        if snippet.kind == "text":
            name, rest = re.match(r"sched\.(\w+)(\(.*)", snippet.text, re.DOTALL).groups()  # type: ignore[union-attr]
            shown[name] = normalized(rest)
    known = signatures(FUNCTIONS)
    assert shown == {name: known[name] for name in CONTRACT}


def test_every_function_of_the_contract_says_what_it_locks() -> None:
    assert [name for name in sorted(CONTRACT) if "Locks:" not in SQL_API.section(name)] == []


def test_every_other_function_is_named_as_internal() -> None:
    named = {code.removeprefix("sched.") for code in first_codes(SQL_API.section("Internal functions"))}
    unnamed = signatures(FUNCTIONS).keys() - CONTRACT - named
    assert unnamed == set(), "name them in docs/reference/sql-api.md, as internal or as part of the contract"
    assert named <= signatures(FUNCTIONS).keys()


def test_every_view_is_explained() -> None:
    views = set(re.findall(r"create or replace view (sched\.\w+)", FUNCTIONS))
    assert set(first_codes(SQL_API.section("Views"))) == views


def written(default: Any) -> str:
    """A default as the page writes it."""
    match default:
        case None:
            return "none"
        case timedelta():
            return f"`{format_duration(default)}`"
        case Enum():
            return f"`{default.value}`"
        case "":
            return "empty"
        case BaseModel():
            return "`{}`"
    return f"`{default}`"


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each field with its path and default; of nested models theirs."""
    for name, info in model.model_fields.items():
        path = prefix + (info.alias or name)
        inner = inner_model(info)
        if inner is None:
            yield path, "required" if info.is_required() else written(info.get_default(call_default_factory=True))
        else:
            yield from fields(inner, f"{path}.")


def inner_model(info: FieldInfo) -> type[BaseModel] | None:
    candidates = [info.annotation, *get_args(info.annotation)]
    candidates += [inner for each in candidates for inner in get_args(each)]
    return next((each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)), None)


def test_every_field_of_a_definition_file_is_listed_with_its_default() -> None:
    expected = {name: "required" if info.is_required() else written(info.default) for name, info in of_file().items()}
    expected |= dict(fields(ScheduleModel))
    expected |= dict(fields(CalendarModel, "calendars.*."))
    expected |= dict(fields(LimitModel, "limits.*."))
    text = page("docs/reference/definition-file.md").text
    listed = {codes(row[0])[0]: row[1] for row in rows(text) if len(row) == 3 and codes(row[0])}
    assert listed == expected


def of_file() -> dict[str, FieldInfo]:
    return FileModel.model_fields


def test_run_has_the_kinds_that_the_page_shows() -> None:
    assert set(RunModel.model_fields) == {"shell", "http", "sql"}


def test_every_variable_of_the_environment_is_listed() -> None:
    sources = [file.read_text() for file in (REPOSITORY / "scheduler").rglob("*.py")]
    read = {name for text in sources for name in re.findall(r"\bSCHED_[A-Z_]*[A-Z]\b", text)}
    listed = {re.sub(r"_<.*", "", name) for name in first_codes(page("docs/reference/settings.md").text)}
    assert {name for name in listed if name.startswith("SCHED_")} == read


def commands(group: Any, prefix: str = "sched") -> Iterator[str]:
    """The full name of each command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def test_every_command_is_in_the_reference() -> None:
    headings = set(re.findall(r"^#+ `?(sched [a-z -]+?)`?$", page("docs/reference/cli.md").text, re.MULTILINE))
    missing = [name for name in commands(typer.main.get_command(app)) if name not in headings]
    assert missing == []
