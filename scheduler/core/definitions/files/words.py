"""Words for values in messages: what they are, and how they look on one bounded line."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from scheduler.core.storable import Path


def did_you_mean(value: Any, options: Iterable[str]) -> str:
    close = get_close_matches(str(value)[:100].lower().replace("-", "_"), list(options), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def not_text(value: Any) -> str:
    if value is None:
        return "is empty: write a text, or leave the key out"
    if isinstance(value, bool | int | float):
        return f'{shown(value)} is not text: write it in quotes, "{shown(value)}"'
    return f"{kind_of(value)} stands here, but a text is needed"


def kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    return {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}.get(type(value), "a number")


def shown(value: Any) -> str:
    """``value`` on one line, bounded, with invisible characters escaped."""
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        return f'"{visible(text)}"'
    if isinstance(value, dict | list) or value is None:
        return kind_of(value)
    return str(value).lower()[:60]


def visible(text: str) -> str:
    """``text`` on one line, what cannot be seen escaped; so are accents that combine with the letter before them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if character.isprintable() and not unicodedata.combining(character) else ascii(character)[1:-1]
        for character in text
    )


def listed(options: Iterable[str]) -> str:
    return ", ".join(options)


def shown_path(path: Path) -> str:
    """``path`` as people read it: schedules by their bare name, list items in brackets, odd keys quoted."""
    steps = path[1:] if path[:1] == ("schedules",) and len(path) > 1 else path
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            plain = step.isprintable() and step.isascii() and step and len(step) <= 100
            text += ("." if text else "") + (step if plain else ascii(step[:100]))
    return text
