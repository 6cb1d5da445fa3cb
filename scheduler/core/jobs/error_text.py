"""Turns exceptions and texts into what may be stored about them: bounded, storable, without secrets.

PostgreSQL's DETAIL quotes data, and connection strings hold passwords; neither belongs into a table that many people
read. What cannot be stored is replaced: an error text must never be the reason why a job stays running.
"""

from __future__ import annotations

import re
import traceback

TEXT_LIMIT = 8000
_READ_LIMIT = 100_000
"""Cut to this first, so that the expressions below need not cope with megabytes."""
_FRAMES = 8

_DETAIL = re.compile(
    r"^DETAIL:.*?(?=^(?:HINT|CONTEXT|QUERY|LINE \d+|LOCATION|SCHEMA NAME):|\Z)", re.MULTILINE | re.DOTALL
)
_URL = re.compile(r"\bpostgres(?:ql)?://[^\s'\"<>]+", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@'\"]*):[^\s/@'\"]+@", re.IGNORECASE)
_KEYWORDS = r"host|hostaddr|port|dbname|user|password|passfile|sslpassword|sslkey|sslcert|service"
_VALUE = r"(?:'(?:[^'\\]|\\.){0,300}+'|[^\s'\",;)]{1,300}+)"
"""Bounded and without backtracking (``+``): a text of 100,000 equals signs must not take minutes."""
_CONNINFO = re.compile(rf"\b(?:{_KEYWORDS})\s?=\s?{_VALUE}(?:\s+[a-z_]+\s?=\s?{_VALUE})+", re.IGNORECASE)
_PASSWORD = re.compile(rf"\b(password|passwd|sslpassword|pgpassword)(\s?[=:]\s?){_VALUE}", re.IGNORECASE)


def exception_text(error: BaseException) -> str:
    """What to store about an exception: type and message first, then the innermost frames of its traceback."""
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    return error_text("".join([f"{_headline(error)}\n", *frames]))


def error_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """``text`` as it may be stored: at most ``limit`` characters, beginning and end kept."""
    cleaned = _storable(_bounded(text, _READ_LIMIT))
    cleaned = _DETAIL.sub("", cleaned)
    cleaned = _URL.sub("postgresql://...", cleaned)
    cleaned = _URL_PASSWORD.sub(r"\1:...@", cleaned)
    cleaned = _CONNINFO.sub("(connection string)", cleaned)
    cleaned = _PASSWORD.sub(r"\1\2...", cleaned)
    return _bounded(cleaned.rstrip(), limit)


def _headline(error: BaseException) -> str:
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:  # an exception of somebody's own class may fail to describe itself
        message = "(it has no readable message)"
    return f"{name}: {message}" if message else name


def _bounded(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2 - 50
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _storable(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
