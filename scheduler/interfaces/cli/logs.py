"""Logs of long-running commands: one line an event on stderr, its details behind it as ``name=value``.

Tracebacks are for SCHED_DEBUG=1; otherwise an exception is one word of its line.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from scheduler.config import is_debug

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "event"}


class LineFormatter(logging.Formatter):
    """``2026-03-01T02:00:00.123Z info job settled job_id=17 outcome=succeeded``."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        details = [f"{name}={value}" for name, value in vars(record).items() if name not in _STANDARD]
        line = " ".join([at, record.levelname.lower(), record.getMessage(), *details]).replace("\n", " ")
        if not record.exc_info:
            return line
        if is_debug():
            return f"{line}\n{self.formatException(record.exc_info)}"
        return f"{line} error={record.exc_info[1]!r}".replace("\n", " ")


def log_to_stderr(level: str) -> None:
    """Log ``scheduler`` events of ``level`` and above to stderr, and nowhere else; a second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("scheduler")
    logger.setLevel(level.upper())
    logger.handlers = [handler]
