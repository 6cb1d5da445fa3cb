"""How far a job is, as its handler says: the value, what of it may be stored, and how people are shown it."""

from __future__ import annotations

import math
from typing import NamedTuple

from scheduler.core.jobs.error_text import error_text

NOTE_LIMIT = 200
"""How many characters of a note are kept; the row of a job should stay small, so that heartbeats stay HOT."""


class Progress(NamedTuple):
    """The fraction that is done, and a few words about it."""

    fraction: float
    note: str | None = None


def storable_progress(progress: Progress) -> Progress:
    """``progress`` with its note as it may be stored: bounded, and cleaned as error texts are."""
    return progress if progress.note is None else progress._replace(note=error_text(progress.note, NOTE_LIMIT))


def describe_progress(fraction: float | None, note: str | None) -> str | None:
    """``40%: page 40 of 100``; None when nothing was said. Only what is complete is 100%."""
    if fraction is None:
        return None
    percent = f"{math.floor(round(fraction * 100, 2))}%"
    return f"{percent}: {note}" if note else percent
