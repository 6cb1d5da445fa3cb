"""Templates of idempotency keys: their placeholders, what makes them valid, and filling them in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from difflib import get_close_matches

from scheduler.core.models import Occurrence
from scheduler.core.time.moments import instant_text

PLACEHOLDERS = ("schedule", "logical_date", "local_date", "interval_start")
LENGTH_LIMIT = 200

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def key_for(template: str, schedule: str, occurrence: Occurrence) -> str:
    """The idempotency key of one date; ``template`` has passed ``template_fault``."""
    values = {
        "schedule": schedule,
        "logical_date": instant_text(occurrence.logical_date),
        "local_date": occurrence.local_date.isoformat(),
        "interval_start": instant_text(occurrence.interval_start),
    }
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def template_fault(template: str) -> str | None:
    """What is wrong with ``template`` and what to write instead, or None."""
    found = _PLACEHOLDER.findall(template)
    if unknown := next((name for name in found if name not in PLACEHOLDERS), None):
        close = get_close_matches(unknown, PLACEHOLDERS, n=1)
        hint = f"did you mean {{{close[0]}}}?" if close else f"write one of {_listed(PLACEHOLDERS)}"
        return f"{{{unknown[:40]}}} is not a placeholder: {hint}"
    if "" in found or set("{}") & set(_PLACEHOLDER.sub("", template)):
        return f"has a brace that belongs to no placeholder: write one of {_listed(PLACEHOLDERS)}"
    if not {"logical_date", "local_date"} & set(found):
        return f'"{template[:80]}" is the same for every date: add {{logical_date}} or {{local_date}}'
    if len(template) > LENGTH_LIMIT:
        return f"is longer than {LENGTH_LIMIT} characters"
    return None


def relies_on_local_date(template: str) -> bool:
    """Whether only the local day tells the keys of two dates apart."""
    found = set(_PLACEHOLDER.findall(template))
    return "local_date" in found and not {"logical_date", "interval_start"} & found


def shared_local_date(occurrences: Iterable[Occurrence]) -> date | None:
    """The first local day that two of ``occurrences`` stand for; they come in order."""
    seen: set[date] = set()
    for occurrence in occurrences:
        if occurrence.local_date in seen:
            return occurrence.local_date
        seen.add(occurrence.local_date)
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)
