"""What a command is told from outside, read once: flags first, then the environment. Imports only our errors.

``SCHED_DSN`` names the database, ``SCHED_ACTOR`` who acts, ``SCHED_LOG`` how much is logged, ``SCHED_DEBUG=1`` shows
the traceback of an internal error. An empty variable counts as not set.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scheduler.errors import ConfigError

LOG_LEVELS = ("debug", "info", "warning", "error")
ACTOR_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``dsn`` is None for the embedded database, which is looked for from ``directory`` upward."""

    dsn: str | None
    directory: Path
    actor: str
    log_level: str | None = None


def read_settings(*, dsn: str | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process; ``dsn`` is the flag. Raises ConfigError with one sentence per mistake."""
    if dsn is not None and not dsn.strip():
        raise ConfigError("--dsn is empty; write it like postgresql://user@host:5432/name, or leave it out")
    if not _is_text(environment.get("SCHED_DSN", "")):
        raise ConfigError("SCHED_DSN is not UTF-8")
    return Settings(
        dsn=dsn or environment.get("SCHED_DSN", "").strip() or None,
        directory=_working_directory(),
        actor=_actor(environment),
        log_level=_log_level(environment),
    )


def is_debug(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether internal errors are shown with their traceback."""
    return environment.get("SCHED_DEBUG", "") not in ("", "0")


def _is_text(value: str) -> bool:
    """Bytes that are no UTF-8 arrive as lone surrogates."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise ConfigError("the current directory does not exist any more; change to another one") from error


def _actor(environment: Mapping[str, str]) -> str:
    """Who does what a person asks for, as events and pauses record it."""
    given = environment.get("SCHED_ACTOR", "").strip()
    if len(given) > ACTOR_LENGTH or not given.isprintable():
        raise ConfigError(f"SCHED_ACTOR must be at most {ACTOR_LENGTH} printable characters")
    return given or _login_name()


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _log_level(environment: Mapping[str, str]) -> str | None:
    given = environment.get("SCHED_LOG", "").strip().lower()
    if given and given not in LOG_LEVELS:
        raise ConfigError(f'SCHED_LOG is "{given[:40]}"; write one of {", ".join(LOG_LEVELS)}')
    return given or None
