"""The folder of definition files: find, read, and hand to ``core.definitions.files``. All definitions, or an error.

This is the one place that touches the files; what they mean is decided in core, which is pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from scheduler.core.definitions.files.build import build_definitions
from scheduler.core.definitions.files.document import SIZE_LIMIT, Document, read_document
from scheduler.core.definitions.files.register import Source
from scheduler.core.definitions.files.shape import check_shape
from scheduler.core.definitions.files.words import shown_path
from scheduler.core.definitions.lint import lint_set
from scheduler.core.models import DefinitionSet
from scheduler.errors import DefinitionError, Problem
from scheduler.services.collector import collector_paused

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDefinitions:
    """The definitions of a folder, and the documents they stand in, by schedule name."""

    definitions: DefinitionSet
    documents: dict[str, Document]

    def problem(self, schedule: str, field: str, message: str) -> Problem:
        """A message about ``field`` (like ``catchup.grace``) of a schedule, with its place or the nearest to it."""
        path = ("schedules", schedule, *field.split("."))
        return self.documents[schedule].problem(path, f"{schedule}.{field}", message)


def load_definitions(folder: Path, *, today: date) -> DefinitionSet:
    """All definitions below ``folder``: ``*.yaml`` and ``*.yml``, sorted by path, hidden files left out.

    ``today`` decides for which years holidays are looked up. A folder without files gives an empty set.
    Raises DefinitionError with every problem of every file, in file order; files are named as ``folder`` was.
    """
    return read_definitions(folder, today=today).definitions


def read_definitions(folder: Path, *, today: date) -> LoadedDefinitions:
    """The same, with the documents, for messages about definitions that loaded well."""
    with collector_paused():
        sources, problems, is_complete = _read_sources(folder)
        build = build_definitions(sources, today, is_complete=is_complete)
    problems += build.problems
    if problems:
        raise DefinitionError(_in_file_order(problems))
    documents = {name: source.document for source in sources for name in source.shape.model.schedules}
    return LoadedDefinitions(definitions=build.definitions, documents=documents)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """How many schedules a folder has, and the warnings about them with their places, in file order."""

    schedules: int
    warnings: list[Problem]


def lint_folder(folder: Path, *, now: datetime) -> LintReport:
    """Check the definitions below ``folder``; dates that warnings name are those after ``now``.

    Raises DefinitionError as ``load_definitions`` does: there are no warnings about a folder that does not load.
    """
    loaded = read_definitions(folder, today=now.date())
    found = [loaded.problem(each.schedule, each.field, each.message) for each in lint_set(loaded.definitions, now)]
    return LintReport(schedules=len(loaded.definitions.schedules), warnings=_in_file_order(found))


def _read_sources(folder: Path) -> tuple[list[Source], list[Problem], bool]:
    """Every file that can be read, the problems so far, and whether all could be read."""
    sources: list[Source] = []
    problems: list[Problem] = []
    is_complete = True
    for path in _definition_files(folder, problems):
        try:
            document = read_document(str(path), _read_text(path))
        except DefinitionError as error:
            problems += error.problems
            is_complete = False
            continue
        shape = check_shape(document.value)
        problems += document.problems
        problems += [
            document.problem(fault.path, shown_path(fault.path), fault.message, at_key=fault.at_key)
            for fault in shape.faults
        ]
        sources.append(Source(path=path.relative_to(folder).as_posix(), document=document, shape=shape))
    return sources, problems, is_complete


def _definition_files(folder: Path, problems: list[Problem]) -> list[Path]:
    if not folder.exists():
        raise DefinitionError([Problem(file=str(folder), message="no such folder: create it, or name another")])
    if not folder.is_dir():
        raise DefinitionError([Problem(file=str(folder), message="is a file: name the folder that holds it")])
    return sorted(_walk(folder, problems, frozenset()), key=lambda path: path.parts)


def _walk(folder: Path, problems: list[Problem], above: frozenset[Path]) -> Iterator[Path]:
    """Definition files below ``folder``. Hidden entries are left out: editors, git and mounted secrets make them."""
    try:
        here = folder.resolve(strict=True)
        entries = sorted(folder.iterdir())
    except OSError as error:
        problems.append(Problem(file=str(folder), message=f"cannot be read: {_reason(error)}"))
        return
    if here in above:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            if entry.suffix.lower() in SUFFIXES:
                yield entry
        elif entry.suffix.lower() in SUFFIXES:
            problems.append(Problem(file=str(entry), message="is a folder with the name of a file: rename it"))
        else:
            yield from _walk(entry, problems, above | {here})


def _read_text(path: Path) -> str:
    """The file's text, whatever the locale. Raises DefinitionError if it cannot be read or is not UTF-8."""
    try:
        if path.is_symlink() and not path.exists():
            raise _error(path, f"is a link to {path.readlink()}, which does not exist: remove or repair it")
        if not path.is_file():
            raise _error(path, "is not a regular file: remove it or rename it")
        if path.stat().st_size > SIZE_LIMIT * 4:
            raise _error(path, f"is larger than {SIZE_LIMIT:,} characters: split it into several files")
        data = path.read_bytes()
    except OSError as error:
        raise _error(path, f"cannot be read: {_reason(error)}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise _error(path, "is UTF-16: save it as UTF-8", 1, 1) from error
        before = data[: error.start]
        line_start = before.rfind(b"\n") + 1
        line, column = before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1
        byte = f"0x{data[error.start]:02x}"
        raise _error(path, f"is not UTF-8 (byte {byte} stands here): save it as UTF-8", line, column) from error


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _error(path: Path, message: str, line: int | None = None, column: int | None = None) -> DefinitionError:
    return DefinitionError([Problem(message=message, file=str(path), line=line, column=column)])


def _in_file_order(problems: list[Problem]) -> list[Problem]:
    return sorted(
        dict.fromkeys(problems),
        key=lambda problem: (Path(problem.file or "").parts, problem.line or 0, problem.column or 0),
    )
