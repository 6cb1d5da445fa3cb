"""No text makes the loader end in anything but definitions or DefinitionError with a place."""

from __future__ import annotations

from datetime import date
from typing import Any, TypeGuard

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.definitions.codec import definition_from_json, definition_hash, definition_to_json
from scheduler.core.definitions.files import model
from scheduler.core.definitions.files.build import build_definitions
from scheduler.core.definitions.files.document import read_document
from scheduler.core.definitions.files.register import Source
from scheduler.core.definitions.files.shape import check_shape
from scheduler.core.models import DefinitionSet
from scheduler.errors import DefinitionError


def is_model(kind: Any) -> TypeGuard[type[model.Model]]:
    return isinstance(kind, type) and issubclass(kind, model.Model)


def keys_of(kind: type[model.Model]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


TODAY = date(2026, 11, 30)
BOUNDED = settings(derandomize=True, max_examples=250, deadline=None, database=None)

KEYS = st.sampled_from(sorted({key for kind in vars(model).values() if is_model(kind) for key in keys_of(kind)}))
# fmt: off
VALUES = st.sampled_from(
    ["", "a", "UTC", "Europe/Berlin", "0 2 * * *", "*/5 * * * *", "5m", "1h", "2026-01-01", "2026-10-25T02:30",
     "{local_date}", "{", "DE", "sat", "queue", "latest", "skip", "https://x", "\0", "\ud800", "a\nb", "9" * 400,
     "DTSTART:20260101T090000\nRRULE:FREQ=DAILY", 1, 0, -1, 1.5, 1e300, 10**30, True, None]
)
# fmt: on
TREES = st.recursive(
    VALUES | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=6),
    max_leaves=25,
)
MARKS = [*"[]{}:-?|>'\"#%@\n\t\\\ufeff\x00\x85\u2028\ud800", ": ", "- ", "\n  ", "&a", "*a", "!t", "---", "...", "<<"]
MARKS += ["\\0", "\\ud800", "1e9", "0x1", "version: 1"]
TEXTS = st.lists(st.sampled_from(MARKS) | KEYS | st.text(max_size=3), max_size=25).map("".join)


def load(text: str) -> DefinitionSet:
    """What the service does with one file, without the file."""
    document = read_document("a.yaml", text)
    shape = check_shape(document.value)
    build = build_definitions([Source(path="a.yaml", document=document, shape=shape)], TODAY)
    problems = [*document.problems, *build.problems]
    problems += [document.problem(fault.path, "", fault.message, at_key=fault.at_key) for fault in shape.faults]
    if problems:
        raise DefinitionError(problems)
    return build.definitions


def check(text: str) -> None:
    try:
        definitions = load(text)
    except DefinitionError as error:
        assert error.problems and all(problem.message and problem.file == "a.yaml" for problem in error.problems)
        assert "\n" not in str(error.problems[0])
        return
    for definition in definitions.schedules.values():
        again = definition_from_json(definition_to_json(definition))
        assert definition_hash(again) == definition_hash(definition)


@given(text=TEXTS)
@BOUNDED
def test_any_text_loads_or_is_refused(text: str) -> None:
    check(text)


@given(tree=TREES)
@BOUNDED
def test_any_tree_of_known_keys_loads_or_is_refused(tree: Any) -> None:
    check(yaml.safe_dump(tree, sort_keys=False))


@given(fields=st.dictionaries(KEYS, VALUES | TREES, max_size=8))
@BOUNDED
def test_any_field_of_a_schedule_loads_or_is_refused(fields: dict[str, Any]) -> None:
    schedule = {"every": "1h", "job": "x", **fields}
    check(yaml.safe_dump({"version": 1, "schedules": {"a": schedule}, "defaults": {"timezone": "UTC"}}))


@given(data=st.binary(max_size=60))
@BOUNDED
def test_any_bytes_that_are_utf_8_load_or_are_refused(data: bytes) -> None:
    check(data.decode("utf-8", "replace"))


@given(depth=st.integers(min_value=1, max_value=100_000), opener=st.sampled_from(["[", "{a: ", "- ", "? ", "- - "]))
@settings(BOUNDED, max_examples=40)
def test_deep_nesting_is_refused_quickly(depth: int, opener: str) -> None:
    check(opener * depth)
