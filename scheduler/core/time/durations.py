"""Durations as people write them: ``90s``, ``15m``, ``6h``, ``7d``, also ``250ms``, ``2w`` and ``1h30m``.

Days and weeks are elapsed time (24 hours, 168 hours), never calendar days. A bare number has no unit and is refused.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

EXAMPLES = "90s, 15m, 6h or 7d"
LONGEST = timedelta(days=36_500)

_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PART = re.compile(r"([0-9]{1,12})(ms|[wdhms])")
_WORDY = re.compile(r"([0-9]+) ?(weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|milliseconds?|[WDHMS])")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> timedelta:
    """The elapsed time ``text`` stands for, zero or more and at most a hundred years.

    Parts go from large to small, each unit once. Raises ValueError with a sentence that names what to write instead.
    """
    total, rest, smallest = timedelta(0), text, LONGEST
    while match := _PART.match(rest):
        unit = _UNITS[match[2]]
        if unit >= smallest or int(match[1]) > LONGEST / unit:
            break
        total, rest, smallest = total + int(match[1]) * unit, rest[match.end() :], unit
    if rest or not text or total > LONGEST:
        raise ValueError(_refusal(text))
    return total


def format_duration(duration: timedelta) -> str:
    """Text that ``parse_duration`` reads back, like ``1h30m``; what is below a millisecond is dropped."""
    milliseconds, parts = duration // _UNITS["ms"], []
    for name, unit in _UNITS.items():
        if name != "w":
            count, milliseconds = divmod(milliseconds, unit // _UNITS["ms"])
            parts += [f"{count}{name}"] if count else []
    return "".join(parts) or "0s"


def _refusal(text: str) -> str:
    shown, number = f'"{text[:40]}"', text.strip()
    if re.fullmatch("[0-9]{1,12}", number):
        return f"{number} has no unit: write {number}s, {number}m or {number}h"
    if len(text) <= 40 and (wordy := _WORDY.fullmatch(text.strip())):
        unit = "ms" if wordy[2].lower().startswith("milli") else wordy[2][0].lower()
        return f"{shown} is not a duration: write {wordy[1]}{unit}"
    if len(text) <= 40 and (iso := _ISO.fullmatch(text)) and any(iso.groups()):
        pairs = zip(iso.groups(), "dhms", strict=True)
        return f"{shown} is not a duration: write {''.join(count + unit for count, unit in pairs if count)}"
    return f"{shown} is not a duration: write a number with a unit, like {EXAMPLES} (at most 100 years)"
