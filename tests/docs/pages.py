"""The pages of the documentation, and what stands in them: links, headings, tables, snippets.

A snippet's info string says what is done with it:

    yaml                 loaded as definitions: a whole file, or a part of one (see ``whole_file``)
    yaml <path>          the same, and written there in the page's folder
    yaml refused         must be refused
    sh                   each line is run in the page's folder; ``# exit code N`` says how it ends, if not with 0
    sh no-run            not run: it does not end, or needs what the tests do not have
    sql                  run on the page's database
    python               run
    python <path>        written there in the page's folder, and compiled
    output               what the command before it prints; ``...`` stands for anything
    mermaid, text, none  not looked at

The snippets of a page are one story: they share a folder and an empty migrated database, in the order of the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

KINDS = {"yaml", "sh", "sql", "python", "output", "mermaid", "text", ""}

_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A fenced block: its kind, the words after it, its text, and the line its fence stands at."""

    kind: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def path(self) -> str | None:
        """The file that the snippet is written to."""
        return next((word for word in self.words if word.endswith((".yaml", ".py", ".sql"))), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One Markdown file; ``name`` is its path in the repository."""

    name: str
    text: str

    @property
    def path(self) -> Path:
        return REPOSITORY / self.name

    @property
    def snippets(self) -> list[Snippet]:
        """Its fenced blocks, in order."""
        return [
            Snippet(
                kind=(match[2].split() or [""])[0],
                words=tuple(match[2].split()[1:]),
                text=re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE),
                line=self.text.count("\n", 0, match.start()) + 1,
            )
            for match in _FENCE.finditer(self.text)
        ]

    @property
    def links(self) -> list[str]:
        """The targets of its links."""
        return _LINK.findall(_CODE.sub("", self.prose))

    @property
    def prose(self) -> str:
        """Its text without the fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def anchors(self) -> set[str]:
        """What a link to one of its headings may say after ``#``."""
        return {_anchor(heading) for heading in _HEADING.findall(self.prose)}

    def section(self, heading: str) -> str:
        """The text under a heading, up to the next one of its level or above."""
        found = re.search(rf"^(#+) {re.escape(heading)}$\n(.*?)(?=^#{{1,6}} |\Z)", self.text, re.MULTILINE | re.DOTALL)
        if found is None:
            raise AssertionError(f"{self.name} has no heading {heading!r}")
        level = len(found[1])
        rest = self.text[found.start(2) :]
        end = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE)
        return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The rows of all tables in ``text`` as cells, without heads and rules."""
    lines = [line.strip() for line in text.splitlines()]
    tables = [index for index, line in enumerate(lines) if re.fullmatch(r"\|[-| :]+\|", line)]
    heads = {index - 1 for index in tables} | set(tables)
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for index, line in enumerate(lines)
        if line.startswith("|") and index not in heads
    ]


def codes(text: str) -> list[str]:
    """What stands in backquotes."""
    return [code.strip("`") for code in _CODE.findall(text)]


@lru_cache(maxsize=1)
def pages() -> tuple[Page, ...]:
    """README and everything below docs."""
    files = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return tuple(
        Page(name=file.relative_to(REPOSITORY).as_posix(), text=file.read_text(encoding="utf-8")) for file in files
    )


def page(name: str) -> Page:
    """The page of that path."""
    return next(page for page in pages() if page.name == name)


def whole_file(text: str) -> str:
    """A part of a definition file as a whole one, so that pages can show only what they are about.

    Top-level keys get a version; schedules by name get ``schedules:`` above; fields of one schedule get a name. What a
    schedule must have and does not show is added: a zone, a rule and a job.
    """
    if re.search(r"^version:", text, re.MULTILINE):
        return text
    keys = set(re.findall(r"^([a-z][a-z0-9._-]*):", text, re.MULTILINE))
    if keys <= {"owner", "defaults", "calendars", "limits", "schedules"}:
        return "version: 1\n" + ("" if "defaults" in keys else "defaults: {timezone: UTC}\n") + text
    if re.search(r"^[a-z][a-z0-9._-]*:\n  ", text, re.MULTILINE) and keys.isdisjoint(_SCHEDULE_KEYS):
        return "version: 1\ndefaults: {timezone: UTC}\nschedules:\n" + _indented(text, 2)
    added = "" if keys & {"cron", "every", "rrule", "at"} else 'cron: "0 2 * * *"\n'
    added += "" if keys & {"job", "run"} else "job: example\n"
    added += "" if "timezone" in keys else "timezone: Europe/Berlin\n"
    return "version: 1\nschedules:\n  example:\n" + _indented(added + text, 4)


_SCHEDULE_KEYS = {
    "cron", "every", "rrule", "at", "job", "run", "payload", "retry", "catchup", "overlap", "dst", "calendar",
    "idempotency_key", "start", "end", "timezone", "limit",
}  # fmt: skip


def _indented(text: str, by: int) -> str:
    return "".join(" " * by + line if line.strip() else line for line in text.splitlines(keepends=True))


def _anchor(heading: str) -> str:
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
