"""The cases DT-01 to DT-05, DT-07, DT-08 and CR-10 as far as they are about definition files.

Problem texts and values are written out; the cases themselves are retold in the project's list of cases.
"""

from __future__ import annotations

import locale
import os
from datetime import date
from pathlib import Path

import pytest

from scheduler.core.models import Cron, DefinitionSet
from scheduler.errors import DefinitionError
from scheduler.services.definitions import load_definitions

TODAY = date(2026, 11, 30)

GOOD = 'version: 1\nschedules:\n  {name}: {{cron: "0 * * * *", timezone: UTC, job: x}}\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``schedules`` folder in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("schedules")
    path.mkdir()
    return path


def load() -> DefinitionSet:
    return load_definitions(Path("schedules"), today=TODAY)


def problems() -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        load()
    return [str(problem) for problem in caught.value.problems]


def cron_of(folder: Path, line: str) -> str:
    (folder / "a.yaml").write_text(f"version: 1\nschedules:\n  a:\n    timezone: UTC\n    job: x\n    cron: {line}")
    rule = load().schedules["a"].timing.rule
    assert isinstance(rule, Cron)
    return rule.expression


# DT-01 Unquoted expression


@pytest.mark.parametrize("expression", ["*/5 * * * *", "* * * * *", "@daily", "@every 5m"])
def test_dt_01_an_unquoted_expression_asks_for_quotes_and_other_files_are_still_checked(
    folder: Path, expression: str
) -> None:
    (folder / "a.yaml").write_text(f"version: 1\nschedules:\n  a:\n    cron: {expression}  # often\n    job: x\n")
    (folder / "b.yaml").write_text("version: 1\nschedules: {b: {every: 5, job: x}}")
    assert problems() == [
        f"schedules/a.yaml:4:11: text that starts with {expression[0]} needs quotes: "
        f'put the expression in quotes, "{expression}"',
        "schedules/b.yaml:2:24: b.every: 5 has no unit: write 5s, 5m or 5h",
    ]


def test_dt_01_an_unquoted_expression_that_begins_with_a_digit_is_fine(folder: Path) -> None:
    assert cron_of(folder, "0 0 * * *") == "0 0 * * *"


# DT-02 Values with a colon become numbers


def test_dt_02_options_with_a_unit_refuse_bare_numbers_and_clock_times(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        """\
version: 1
schedules:
  a: {cron: 5, timezone: UTC, job: x, timeout: 1:30}
  b: {at: 22:30, timezone: UTC, job: x, finish_by: 9}
"""
    )
    assert problems() == [
        'schedules/a.yaml:3:13: a.cron: 5 is not text: write it in quotes, "5"',
        'schedules/a.yaml:3:48: a.timeout: "1:30" is not a duration: '
        "write a number with a unit, like 90s, 15m, 6h or 7d (at most 100 years)",
        'schedules/a.yaml:4:11: b.at[0]: "22:30" has no date: write 2026-01-31, 2026-01-31T08:30 or '
        '2026-01-31T08:30:00Z; for every day at that time use cron: "30 22 * * *"',
        "schedules/a.yaml:4:52: b.finish_by: 9 has no unit: write 9s, 9m or 9h",
    ]


def test_dt_02_a_payload_keeps_what_yaml_1_1_would_have_changed(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        """\
version: 1
schedules:
  a:
    every: 1h
    job: x
    payload:
      start_time: 10:00
      quoted: "10:00"
      country: NO
      switch: on
      code: 010
      hex: 0x1F
      day: 2026-01-01
      underscore: 1_000
      count: 10
      ratio: 1.5
      large: 1e22
      flag: true
      nothing: null
      empty:
      not_a_number: .nan
"""
    )
    assert load().schedules["a"].payload == {
        "start_time": "10:00",
        "quoted": "10:00",
        "country": "NO",
        "switch": "on",
        "code": "010",
        "hex": "0x1F",
        "day": "2026-01-01",
        "underscore": "1_000",
        "count": 10,
        "ratio": 1.5,
        "large": 10_000_000_000_000_000_000_000,
        "flag": True,
        "nothing": None,
        "empty": None,
        "not_a_number": ".nan",
    }


# DT-03 The same key, the same name, twice


def test_dt_03_a_key_twice_is_an_error_with_both_lines(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        'version: 1\nschedules:\n  a:\n    cron: "0 1 * * *"\n    timezone: UTC\n    job: x\n    cron: "0 2 * * *"\n'
    )
    assert problems() == ['schedules/a.yaml:7:5: the key "cron" stands here again (first at line 4): keep one of them']


def test_dt_03_a_name_in_two_files_is_an_error_naming_both_places(folder: Path) -> None:
    for name in ("a.yaml", "b.yaml", "b.yml"):
        (folder / name).write_text(GOOD.format(name="report"))
    assert problems() == [
        f"schedules/{name}:3:3: report: is already defined at schedules/a.yaml:3:3: "
        "names are unique across all files, so rename one"
        for name in ("b.yaml", "b.yml")
    ]


def test_dt_03_names_that_differ_only_in_case_or_unicode_form_cannot_exist(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        "version: 1\nschedules:\n"
        + "".join(f"  {name}: {{every: 1h, job: x}}\n" for name in ("Report", "caf\u00e9", "cafe\u0301")),
        encoding="utf-8",
    )
    rule = "1 to 100 of a-z 0-9 . _ -, beginning with a letter or a digit"
    assert problems() == [
        f'schedules/a.yaml:3:3: Report: "Report" is not a name: {rule}; for example "report"',
        f'schedules/a.yaml:4:3: \'caf\\xe9\': "caf\u00e9" is not a name: {rule}; for example "caf"',
        f'schedules/a.yaml:5:3: \'cafe\\u0301\': "cafe\\u0301" is not a name: {rule}; for example "cafe"',
    ]


# DT-04 One bad file


def test_dt_04_ten_good_files_and_one_of_each_bad_kind_list_all_that_is_bad(folder: Path) -> None:
    for number in range(10):
        (folder / f"good-{number}.yaml").write_text(GOOD.format(name=f"good-{number}"))
    (folder / "broken.yaml").write_text("version: 1\nschedules: {a: b: c}")
    (folder / "zone.yaml").write_text('version: 1\nschedules: {z: {cron: "0 1 * * *", timezone: Berlin, job: x}}')
    (folder / "cron.yaml").write_text('version: 1\nschedules: {c: {cron: "0 25 * * *", timezone: UTC, job: x}}')
    (folder / "folder.yaml").mkdir()
    (folder / "link.yaml").symlink_to("nowhere")
    (folder / "empty.yaml").touch()
    (folder / "comment.yaml").write_text("# nothing yet\n")
    (folder / "off.yaml").write_text("version: 1\nschedules: {off: {enabled: false, every: 1h, job: x}}")
    assert problems() == [
        'schedules/broken.yaml:2:17: a comma or bracket is missing before this, or text with ": " or "," needs quotes',
        "schedules/comment.yaml:1:1: is empty: write `version: 1` and `schedules:`, or delete the file",
        'schedules/cron.yaml:2:23: c.cron: "0 25 * * *": hour "25" is outside 0-23; write a value from 0 to 23',
        "schedules/empty.yaml:1:1: is empty: write `version: 1` and `schedules:`, or delete the file",
        "schedules/folder.yaml: is a folder with the name of a file: rename it",
        "schedules/link.yaml: is a link to nowhere, which does not exist: remove or repair it",
        "schedules/off.yaml:2:19: off.enabled: is not a known key: a schedule in a file is active; "
        "`sched schedules pause` stops it for a while",
        'schedules/zone.yaml:2:46: z.timezone: "Berlin" is not an IANA zone; did you mean "Europe/Berlin"?',
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads files of any mode")
def test_dt_04_an_unreadable_file_is_named(folder: Path) -> None:
    (folder / "a.yaml").write_text(GOOD.format(name="a"))
    (folder / "a.yaml").chmod(0)
    assert problems() == ["schedules/a.yaml: cannot be read: permission denied"]


def test_dt_04_a_file_that_fails_to_read_is_named_whoever_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.yaml").write_text(GOOD.format(name="a"))

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert problems() == ["schedules/a.yaml: cannot be read: permission denied"]


def test_dt_04_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    assert problems() == ["schedules/pipe.yaml: is not a regular file: remove it or rename it"]


# DT-05 NUL in a payload


def test_dt_05_a_nul_in_a_payload_is_refused_with_the_schedule_and_the_field(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        'version: 1\nschedules:\n  report: {every: 1h, job: x, payload: {a: [{b: "x\\0y"}], "k\\0": 1}}\n'
    )
    sentence = "contains a NUL character (\\0), which PostgreSQL cannot store: remove it"
    assert problems() == [
        f"schedules/a.yaml:3:49: report.payload.a[0].b: {sentence}",
        f"schedules/a.yaml:3:59: report.payload.'k\\x00': key {sentence}",
    ]


def test_dt_05_half_a_surrogate_pair_and_numbers_without_a_value_are_refused(folder: Path) -> None:
    (folder / "a.yaml").write_text('version: 1\nschedules: {a: {every: 1h, job: x, payload: {a: "\\ud800"}}}')
    (folder / "b.yaml").write_text("version: 1\nschedules: {b: {every: 1h, job: x, payload: {a: 1e999}}}")
    assert problems() == [
        "schedules/a.yaml:2:52: this escape is not a character: "
        "write the character itself, or \\U0001F600 for one beyond \\uFFFF",
        "schedules/b.yaml:2:49: 1e999 is too large for a number: write it in quotes to keep it as text",
    ]


def test_dt_05_a_payload_larger_than_256_kib_is_refused(folder: Path) -> None:
    (folder / "a.yaml").write_text(
        f"version: 1\nschedules: {{a: {{every: 1h, job: x, payload: {{a: {'x' * 262_144}}}}}}}"
    )
    assert problems() == [
        "schedules/a.yaml:2:45: a.payload: is 262,153 bytes as JSON, more than 262,144: "
        "store the data and pass a reference"
    ]


# DT-07 Names that cannot be carried


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("O'Brien", '"O\'Brien"'),
        ("'a\"b'", '"a"b"'),
        (r"back\slash", r'"back\slash"'),
        ("x; drop table jobs", '"x; drop table jobs"'),
        ("$$", '"$$"'),
        ("$cron$", '"$cron$"'),
        ("100%", '"100%"'),
        ("na\u00efve", '"na\u00efve"'),
        (r'"two\nlines"', r'"two\nlines"'),
        ('""', '""'),
        ("-dash", '"-dash"'),
        ("x" * 101, '"' + "x" * 57 + '..."'),
    ],
)
def test_dt_07_a_name_that_sql_or_shell_would_have_to_escape_is_refused(folder: Path, written: str, shown: str) -> None:
    (folder / "a.yaml").write_text(f"version: 1\nschedules:\n  {written}: {{every: 1h, job: x}}\n", encoding="utf-8")
    (problem,) = problems()
    assert problem.startswith("schedules/a.yaml:3:3: ")
    assert f"{shown} is not a name: 1 to 100 of a-z 0-9 . _ -, beginning with a letter or a digit" in problem


def test_dt_07_such_text_in_a_payload_is_kept_as_it_is(folder: Path) -> None:
    text = "O'Brien $$ $cron$ 100% back\\slash; drop table jobs"
    (folder / "a.yaml").write_text(f"version: 1\nschedules:\n  a: {{every: 1h, job: x, payload: {{a: {text}}}}}\n")
    assert load().schedules["a"].payload == {"a": text}


# DT-08 Encoding, BOM, tabs, several documents

PLAIN = (
    'version: 1\nschedules:\n  a:\n    cron: "0 1 * * *"\n    timezone: UTC\n    job: x\n    description: caf\u00e9\n'
)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        PLAIN.encode("utf-8-sig"),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r\n").encode("utf-8-sig"),
        ("---\n" + PLAIN + "...\n").encode(),
        ("# a comment\n\n" + PLAIN).encode(),
    ],
    ids=["plain", "bom", "crlf", "bom and crlf", "document marks", "comment"],
)
def test_dt_08_bom_and_crlf_load_as_the_plain_file_in_any_locale(folder: Path, data: bytes) -> None:
    (folder / "a.yaml").write_bytes(data)
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "C")
    try:
        definition = load().schedules["a"]
    finally:
        locale.setlocale(locale.LC_ALL, before)
    assert definition.description == "caf\u00e9"
    assert definition.timing.rule == Cron(expression="0 1 * * *")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (PLAIN.encode("utf-16"), "1:1: is UTF-16: save it as UTF-8"),
        (PLAIN.encode("latin-1"), "7:21: is not UTF-8 (byte 0xe9 stands here): save it as UTF-8"),
        (
            b"version: 1\nschedules:\n\ta:\n\t\tevery: 1h\n",
            "3:1: a tab cannot indent YAML: use spaces",
        ),
        (
            b"version: 1\n---\nversion: 1\n",
            "2:1: a second document starts here: one document a file, "
            "so move what follows `---` into a file of its own",
        ),
        (b"", "1:1: is empty: write `version: 1` and `schedules:`, or delete the file"),
        (b"---\n", "1:1: is empty: write `version: 1` and `schedules:`, or delete the file"),
        (
            "version: 1\n\ufeffschedules: {}\n".encode(),
            "2:1: an invisible byte order mark (U+FEFF) stands here: remove it",
        ),
        (
            b"version: 1\nowner: a\x00b\n",
            '2:9: the character U+0000 cannot stand in YAML: remove it, or write "\\u0000" in quotes',
        ),
    ],
    ids=["utf-16", "latin-1", "tabs", "two documents", "empty", "empty document", "inner bom", "nul"],
)
def test_dt_08_other_encodings_tabs_and_several_documents_are_errors_with_a_line(
    folder: Path, data: bytes, problem: str
) -> None:
    (folder / "a.yaml").write_bytes(data)
    assert problems() == [f"schedules/a.yaml:{problem}"]


# CR-04 Parked with an expression that never matches


def test_cr_04_an_expression_that_never_matches_loads(folder: Path) -> None:
    assert cron_of(folder, '"0 0 31 2 *"') == "0 0 31 2 *"


# CR-10 Blanks around and inside the expression


@pytest.mark.parametrize(
    "line",
    ['"0 0 12 9 * "', '" 0 0 12 9 *"', '"0  0\\t12 9 *"', "|\n      0 0 12 9 *\n", ">\n      0 0\n      12 9 *\n"],
)
def test_cr_10_blanks_do_not_change_an_expression(folder: Path, line: str) -> None:
    assert cron_of(folder, line) == "0 0 12 9 *"


def test_cr_10_a_blank_that_cannot_be_seen_is_named(folder: Path) -> None:
    text = 'version: 1\nschedules:\n  a: {cron: "0 0 12\u00a09 *", timezone: UTC, job: x}\n'
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    (problem,) = problems()
    assert problem.startswith("schedules/a.yaml:3:13: a.cron: has the character U+00A0 (NO-BREAK SPACE)")
