"""The cron dialect: what each form means, and what is refused with which advice."""

from __future__ import annotations

import pytest

from scheduler.core.time.cron import CronFields, cron_warnings, parse_cron
from scheduler.errors import DefinitionError

EVERY_DAY = sum(1 << day for day in range(1, 32))


def parsed(expression: str, name: str = "ingest") -> CronFields:
    return parse_cron(expression, name)


def bits(*values: int) -> int:
    return sum(1 << value for value in values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0", (0,)),
        ("00", (0,)),
        ("5,10,5", (5, 10)),
        ("7-7", (7,)),
        ("10-13", (10, 11, 12, 13)),
        ("*/20", (0, 20, 40)),
        ("5-30/10", (5, 15, 25)),
        ("1,50-59/3,30", (1, 30, 50, 53, 56, 59)),
        ("59-59/7", (59,)),
        ("*/90", (0,)),
        ("*,5", tuple(range(60))),
    ],
)
def test_lists_ranges_and_steps_of_a_field(text: str, values: tuple[int, ...]) -> None:
    assert parsed(f"{text} 0 * * *").minutes == values


@pytest.mark.parametrize(
    ("text", "months"), [("JAN", (1,)), ("feb-apr", (2, 3, 4)), ("Nov,dec", (11, 12)), ("jan-dec/6", (1, 7))]
)
def test_months_have_names(text: str, months: tuple[int, ...]) -> None:
    assert parsed(f"0 0 1 {text} *").months == months


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("sun", bits(0)),
        ("7", bits(0)),
        ("0", bits(0)),
        ("mon-fri", bits(1, 2, 3, 4, 5)),
        ("fri-sun", bits(5, 6, 0)),
        ("sat-sun", bits(6, 0)),
        ("sun-tue", bits(0, 1, 2)),
        ("sun-sun", bits(0)),
        ("5-7", bits(5, 6, 0)),
        ("1-7/2", bits(1, 3, 5, 0)),
        ("*/2", bits(0, 2, 4, 6)),
        ("0-7", bits(0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_weekdays_have_names_and_two_sundays(text: str, weekdays: int) -> None:
    assert parsed(f"0 0 * * {text}").weekdays == weekdays


def test_last_day_last_weekday_and_nth_weekday() -> None:
    fields = parsed("0 0 L,15 * *")
    assert (fields.last_day, fields.days) == (True, bits(15))
    fields = parsed("0 0 * * 5L,friL,1#2,sun#1,3")
    assert (fields.last_weekdays, fields.nth_weekdays, fields.weekdays) == (bits(5), ((0, 1), (1, 2)), bits(3))
    assert not fields.weekdays_open


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        (" @Daily\n", "0 0 * * *"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("0 0 ? * mon", "0 0 * * 1"),
        ("0 0 * * 7", "0 0 * * sun"),
        ("0,1,2 0 * * *", "0-2 0 * * *"),
    ],
)
def test_two_ways_to_write_the_same_rule_are_equal(short: str, long: str) -> None:
    assert parsed(short) == parsed(long)


@pytest.mark.parametrize(
    ("expression", "is_wild"),
    [
        ("* * * * *", True),
        ("*/5 3 * * *", True),
        ("0 */2 * * *", True),
        ("0 * * * *", True),
        ("H * * * *", True),
        ("0 2 * * *", False),
        ("0-59 0-23 * * *", False),
        ("H H * * *", False),
        ("H/15 2 * * *", False),
        ("5,* 3 * * *", False),
    ],
)
def test_a_rule_is_wild_when_the_text_of_minute_or_hour_begins_with_a_star(expression: str, is_wild: bool) -> None:
    assert parsed(expression).is_wild is is_wild


@pytest.mark.parametrize(
    ("days", "is_or"), [("1 * 5", True), ("L * 5L", True), ("*/2 * 5", False), ("1 * */2", False), ("? * 5", False)]
)
def test_day_fields_are_joined_by_or_only_if_neither_begins_with_a_star(days: str, is_or: bool) -> None:
    assert parsed(f"0 0 {days}").joins_days_with_or is is_or


def test_h_is_the_same_for_a_name_in_every_release() -> None:
    fields = parsed("H H(2-4) H H H", "daily-ingest")
    found = (fields.minutes, fields.hours, fields.days, fields.months, fields.weekdays)
    assert found == ((35,), (4,), bits(18), (3,), bits(3))
    assert parsed("H/15 * * * *", "daily-ingest").minutes == (5, 20, 35, 50)


def test_h_differs_between_names_and_stays_in_its_range() -> None:
    minutes = {parsed("H 0 * * *", f"job-{number}").minutes[0] for number in range(300)}
    assert len(minutes) > 55
    for number in range(300):
        fields = parsed("H(10-19) H H H H", f"job-{number}")
        assert 10 <= fields.minutes[0] <= 19
        assert fields.days.bit_length() - 1 <= 28


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("", "write five fields"),
        ("   ", "write five fields"),
        ("0 2 * *", "has 4 fields; write five"),
        ("5", "has 1 field; write five"),
        ("0 0 12 * * ?", "6 fields; seconds first is the form of Quartz and Spring"),
        ("0 0 12 * * ? *", "7 fields; seconds first and year last is the form of Quartz"),
        ("0 22-2 * * *", 'hour "22-2" runs backwards; write "22-23,0-2"'),
        ("50-10 * * * *", 'minute "50-10" runs backwards; write "50-59,0-10"'),
        ("0 22-2/2 * * *", 'write "0,2,22"'),
        ("0 0 * * fri-mon", 'write "5-6,0-1"'),
        ("0 0 * * 6-0", 'write "6-7"'),
        ("0 0 * nov-feb *", 'write "11-12,1-2"'),
        ("0 1/6 * * *", 'hour "1/6" has a step without a range; write "1-23/6" or "*/6"'),
        ("0 0 15W * *", "asks for the nearest weekday"),
        ("0 0 LW * *", "asks for the nearest weekday"),
        ("R 0 * * *", 'is random, and dates must be the same every time; write "H"'),
        ("R(0-5) 0 * * *", 'write "H"'),
        ("0 0 L-3 * *", "counts back from the last day"),
        ("0 0 * * L", 'write "5L" for the last Friday'),
        ("0 0 * * L5", 'write "5L"'),
        ("0 0 * * 1#6", 'write "1#1" to "1#5"'),
        ("0 0 1#2 * *", "write it in the fifth field"),
        ("? 0 * * *", '"?" stands only in the two day fields; write "*"'),
        ("0 0 1,? * *", '"?" stands alone'),
        ("60 0 * * *", 'minute "60" is outside 0-59; write a value from 0 to 59'),
        ("0 24 * * *", 'hour "24" is outside 0-23'),
        ("0 0 0 * *", 'day-of-month "0" is outside 1-31'),
        ("0 0 32 * *", "is outside 1-31"),
        ("0 0 * 13 *", "is outside 1-12"),
        ("0 0 * * 8", "is outside 0-7"),
        ("99999999999999999999 0 * * *", "is outside 0-59"),
        ("*/0 * * * *", "has a step of 0"),
        ("*/100000 * * * *", "has a step that is too large"),
        ("0 0 * foo *", 'month "foo" has an unknown name; write one of jan, feb'),
        ("0 0 * * monday", "has an unknown name; write one of sun, mon"),
        ("mon 0 * * *", "takes numbers, not names"),
        ("1, 0 * * *", "is an empty list item"),
        ("-5 0 * * *", "cannot be read"),
        ("1-2-3 0 * * *", "cannot be read"),
        ("0.5 0 * * *", "cannot be read"),
        ("H(9-3) 0 * * *", 'write "H(3-9)"'),
        ("H(0-60) 0 * * *", "is outside 0-59"),
        ("@reboot", "names no time"),
        ("@every 5m", 'write "every: 5m"'),
        ("@dayly", "write one of @yearly"),
        ("@daily 5", "is not a known short form"),
        ("TZ= 0 2 * * *", 'write "timezone: Europe/Berlin"'),
        ("TZ=Europe/Paris 0 2 * * *", 'write "timezone: Europe/Paris"'),
        ("CRON_TZ=UTC @daily", 'write "timezone: UTC"'),
        ("0\u00a02 * * *", r"U+00A0 (NO-BREAK SPACE)"),
        ("0 2 * * *\u200b", "U+200B (ZERO WIDTH SPACE) at position 10"),
        ("\ufeff0 2 * * *", "U+FEFF"),
        ("\u0660 2 * * *", "U+0660 (ARABIC-INDIC DIGIT ZERO)"),
        ("0 2 * * \u2217", "U+2217 (ASTERISK OPERATOR)"),
        ("0 2 * *\x00 *", "U+0000 (a control character)"),
        (",".join(["0"] * 200) + " 0 * * *", "at most 256 are allowed"),
    ],
)
def test_what_is_refused_comes_with_the_spelling_to_use(expression: str, advice: str) -> None:
    with pytest.raises(DefinitionError) as error:
        parsed(expression)
    assert advice in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0 0 1,15 * 5", ["joined by OR"]),
        ("0 0 */2 * 5", ["joined by AND", "starts again on the 1st of each month"]),
        ("*/7 * * * *", ["7 does not divide 60; after 56 it starts again at 0"]),
        ("0 */5 * * *", ["5 does not divide 24; after 20 it starts again at 0"]),
        ("0 0 1 */5 *", ["5 does not divide 12; after 11 it starts again at 1"]),
        ("0 0 * * */2", ["2 does not divide 7; after 6 it starts again at 0"]),
        ("*/60 * * * *", ["it means 0 only"]),
        ("0-59/7 * * * *", ["7 does not divide 60"]),
        ("*/15 * * * *", []),
        ("0 9-17/3 * * 1-5", []),
        ("0 2 * * ?", []),
        ("0 2 */1 * *", []),
    ],
)
def test_lint_warns_of_what_is_accepted_but_may_surprise(expression: str, said: list[str]) -> None:
    warnings = cron_warnings(parsed(expression))
    assert len(warnings) == len(said)
    assert all(part in warning for part, warning in zip(said, warnings, strict=True))
