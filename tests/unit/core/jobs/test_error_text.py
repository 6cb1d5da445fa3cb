"""What is stored about errors: bounded, storable, without DETAIL and without secrets."""

from __future__ import annotations

import time

import pytest

from scheduler.core.jobs.error_text import TEXT_LIMIT, error_text, exception_text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain", "plain"),
        ("ends with blanks \n\n", "ends with blanks"),
        ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
        ("half \ud83d pair", "half ? pair"),
        ("see postgresql://me:pw@db.internal:5432/app?sslmode=require now", "see postgresql://... now"),
        ("postgres://db/app", "postgresql://..."),
        ("https://me:pw@site.test/x", "https://me:...@site.test/x"),
        ("amqp://guest:guest@mq:5672//", "amqp://guest:...@mq:5672//"),
        ("https://site.test:8080/x", "https://site.test:8080/x"),
        ('could not connect: host=db user=me password=pw dbname=x"', 'could not connect: (connection string)"'),
        ("dbname = x  host='a b' password='p w' and more", "(connection string) and more"),
        ("password=hunter2 was wrong", "password=... was wrong"),
        ("PGPASSWORD: hunter2", "PGPASSWORD: ..."),
        ("the host=x alone stays", "the host=x alone stays"),
        (
            'duplicate key value violates "k"\nDETAIL:  Key (mail)=(a@b.c) exists.\nmore of it\nHINT:  none',
            'duplicate key value violates "k"\nHINT:  none',
        ),
        ("broken\nDETAIL:  Failing row contains (secret)", "broken"),
        ("DETAIL:  x\nDETAIL:  y\nCONTEXT:  z", "CONTEXT:  z"),
    ],
)
def test_texts_are_cleaned(text: str, stored: str) -> None:
    assert error_text(text) == stored


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = error_text("begin " + "x" * 1_000_000 + " end")
    assert text.startswith("begin ") and text.endswith(" end") and "left out" in text
    assert len(text) <= TEXT_LIMIT


@pytest.mark.parametrize(
    "filler", ["a.", "host=", "DETAIL:\n", "://", "password=", "a" * 50 + " ", "'", "=", "\n", "a+-"]
)
def test_no_text_takes_long(filler: str) -> None:
    """Four times the text takes four times as long, not sixteen times; what is beyond the first cut adds nothing.

    Shares of processor time, the least of several runs: a busy machine makes both sides slow alike.
    """
    quarter, whole, megabytes = (processor_time(filler, size) for size in (25_000, 100_000, 2_000_000))
    assert whole < 10 * quarter
    assert megabytes < 4 * whole


def processor_time(filler: str, size: int) -> float:
    text = filler * (size // len(filler))
    return min(_once(text) for _ in range(5))


def _once(text: str) -> float:
    began = time.process_time()
    error_text(text)
    return time.process_time() - began


def test_an_exception_is_named_first_and_followed_by_where_it_was_raised() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        lines = exception_text(error).splitlines()
    assert lines[0] == "ValueError: broken"
    assert "test_error_text.py" in lines[1] and "test_an_exception_is_named_first" in lines[1]


def test_an_exception_without_message_or_with_one_that_fails_is_named() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert exception_text(KeyError()) == "KeyError"
    assert exception_text(Mute()) == "Mute: (it has no readable message)"
