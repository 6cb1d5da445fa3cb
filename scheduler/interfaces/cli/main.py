"""``sched``: the command line. Puts the groups together, and turns every way a command can end into an exit code.

Commands parse, call one service, print. Exit codes: 0 done, 1 finished with findings, 2 bad input, 3 database
unreachable or unfit, 4 internal; 130 after Ctrl-C. Nobody is shown a traceback, unless SCHED_DEBUG=1 asks for it.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, NoReturn

import typer

from scheduler import __version__
from scheduler.config import is_debug
from scheduler.errors import ConfigError, SchedulerError
from scheduler.interfaces.cli import (
    backfill,
    backfills,
    bench,
    definitions,
    doctor,
    explain,
    jobs,
    ledger,
    pgcron,
    preview,
    prune,
    run,
    schedules,
    simulate,
)
from scheduler.interfaces.cli.options import Dsn
from scheduler.interfaces.cli.output import OutputClosed, print_line, say, sentences

BAD_INPUT = 2
INTERNAL = 4
INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE
TERMINATED = 128 + signal.SIGTERM

app = typer.Typer(
    name="sched",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)
for group in (run, definitions, preview, simulate, ledger, explain, doctor, prune, jobs, pgcron):
    app.add_typer(group.app)
backfill.app.add_typer(backfills.app)
app.add_typer(backfill.app, name="backfill")
app.add_typer(jobs.jobs, name="jobs")
app.add_typer(schedules.schedules, name="schedules")
app.add_typer(bench.app, name="bench")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print_line(f"sched {__version__}")
        raise typer.Exit


@app.callback()
def sched(
    context: typer.Context,
    dsn: Dsn = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Recurring work on PostgreSQL: every logical date is a row with an outcome and a reason.

    \b
    Begin:     sched up                          everything in one process
    Look:      sched status, sched jobs list
    Missed?    sched gaps --since 2026-01-01     then: sched backfill --since 2026-01-01
    Check:     sched lint schedules              then: sched plan, sched apply

    \b
    Exit codes: 0 done, 1 finished with findings, 2 bad input, 3 database unreachable or unfit, 4 internal.
    """
    context.obj = dsn


def main() -> NoReturn:
    """The entry point of the installed command."""
    signal.signal(signal.SIGTERM, _end_in_order)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run_command(sys.argv[1:])
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code. Whatever goes wrong is a sentence on stderr."""
    try:
        _require_text(arguments)
        code = typer.main.get_command(app).main(args=list(arguments), prog_name="sched", standalone_mode=False)
    except SchedulerError as error:
        _report(*sentences(error))
        return error.exit_code
    except OutputClosed:
        _leave_closed_output()
        return PIPE_CLOSED
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        return _unexpected(error)
    return code if isinstance(code, int) else 0


def _require_text(arguments: Sequence[str]) -> None:
    """Bytes that are no UTF-8 arrive as lone surrogates, which no database stores."""
    for argument in arguments:
        if not argument.isascii() and any("\ud800" <= character <= "\udfff" for character in argument):
            raise ConfigError(f"the argument {argument[:40]!a} is not UTF-8")


def _unexpected(error: Exception) -> int:
    """A usage error of the command line, which typer raises by a class of its own, or a fault of ours."""
    if isinstance(error, _usage_error_type()):
        show = getattr(error, "format_message", error.__str__)
        context = getattr(error, "ctx", None)
        hint = f' ("{context.command_path} --help" shows how)' if context is not None else ""
        text = show().strip().rstrip(".")
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: the text is its help
            _report(text)
            return BAD_INPUT
        _report(f"error: {text}{hint}")
        return BAD_INPUT
    if is_debug():
        traceback.print_exception(error)
    else:
        _report(f"internal error: {_summary(error)}; run it again with SCHED_DEBUG=1 to see where")
    return INTERNAL


def _usage_error_type() -> type[Exception]:
    """typer brings its own copy of click from 0.26 on; both have this class above ``BadParameter``."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _summary(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _report(*lines: str) -> None:
    with contextlib.suppress(OutputClosed):
        for line in lines:
            say(line)


def _leave_closed_output() -> None:
    """Keep Python from complaining, at its end, about what it could not flush."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_in_order(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a command like an exit does, so that an embedded server is given back."""
    sys.exit(TERMINATED)


if __name__ == "__main__":
    main()
