"""The JSON Schema shipped for editors is the one the models make.

After a change of the models, write it again: ``python -m tests.unit.core.definitions.test_schema_file``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from scheduler.core.definitions.files.model import json_schema

FILE = Path(__file__).parents[4] / "scheduler" / "schedule.schema.json"


def written() -> str:
    return json.dumps(json_schema(), indent=2) + "\n"


def test_the_shipped_schema_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == written()


def test_every_key_of_a_schedule_is_described() -> None:
    properties = json_schema()["$defs"]["ScheduleModel"]["properties"]
    assert {"cron", "every", "rrule", "at", "anchor", "timezone", "job", "run", "renamed_from"} <= properties.keys()
    assert [key for key, schema in properties.items() if not schema.get("description")] == []


def test_defaults_in_the_schema_are_written_as_in_a_file() -> None:
    assert json_schema()["$defs"]["CatchupModel"]["properties"]["grace"]["default"] == "2m"
    assert "PT" not in re.findall(r'"default": "?(..)', written())


def test_exactly_one_rule_and_one_kind_of_work_are_asked_for() -> None:
    rules, work = json_schema()["$defs"]["ScheduleModel"]["allOf"]
    assert required(rules) == ["cron", "every", "rrule", "at"]
    assert required(work) == ["job", "run"]


def required(choice: dict[str, Any]) -> list[str]:
    return [key for option in choice["oneOf"] for key in option["required"]]


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
