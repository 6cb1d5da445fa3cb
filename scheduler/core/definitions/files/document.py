"""YAML text into plain values, strictly, with the place of every key and value.

YAML is read for what its author meant: only ``true``, ``false``, ``null`` and decimal numbers are anything but text,
so that ``on``, ``NO``, ``12:30`` and ``010`` arrive as written. Tags, anchors, aliases, merge keys, duplicate keys and
deep nesting are refused. libyaml scans the text; the values are built here; ``services.definitions`` reads the files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from scheduler.core.definitions.files.words import visible
from scheduler.core.storable import Path
from scheduler.errors import DefinitionError, Problem

SIZE_LIMIT = 1_000_000
DEPTH_LIMIT = 20

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DIGITS_LIMIT = 1_000
_TEXT_TAG = "tag:yaml.org,2002:str"

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_PROPERTY = re.compile(r"(?:^|[\s\[\]{},:?-])(?:[&*]\w|[&*]-|!)", re.MULTILINE)
"""Finds every anchor, alias and tag, and some innocent text: the parser's events then decide."""


class _Loader(yaml.CSafeLoader):
    """Composes without looking for dates, numbers or booleans in plain scalars: every node is text."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        return _TEXT_TAG


class Document:
    """One file's value, and where its parts stand.

    ``problems`` are those that did not keep the text from being read: duplicate keys, keys that are not text. Places
    come from composing the text again at the first question, since most files have no problem and nodes are large.
    """

    def __init__(self, file: str, text: str, value: Any, problems: tuple[Problem, ...]) -> None:
        self.file, self.value, self.problems = file, value, problems
        self._text = text

    def problem(self, path: Path, shown_path: str, message: str, *, at_key: bool = False) -> Problem:
        """A problem at the value of ``path``, or at its key; the nearest existing parent where it is absent."""
        line, column = self.place(path, at_key=at_key)
        return Problem(message=visible(message), path=shown_path, file=self.file, line=line, column=column)

    def place(self, path: Path, *, at_key: bool = False) -> tuple[int, int]:
        """Line and column, from 1, of the value at ``path`` or of its key.

        A step that does not exist is passed over, so that ``run.shell.command[1]`` finds the second item of the list
        that stands directly below ``shell``; a missing last step ends at the key of its parent.
        """
        key: yaml.Node | None = None
        node, missing = self._root, False
        for step in path:
            found = _child(node, step)
            missing = found is None
            if found is not None:
                key, node = found
        at_key = at_key or (missing and isinstance(node, yaml.MappingNode))
        mark = (key if key is not None and at_key else node).start_mark
        return mark.line + 1, mark.column + 1

    @cached_property
    def _root(self) -> yaml.Node:
        root = yaml.compose(self._text, Loader=_Loader)
        assert root is not None, "an empty text is no document"
        return root


def read_document(file: str, text: str) -> Document:
    """The document ``text`` holds; ``file`` only names it in problems.

    Raises DefinitionError if the text cannot be read as one YAML document within the limits.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > SIZE_LIMIT:
        raise _error(file, f"is larger than {SIZE_LIMIT:,} characters: split it into several files")
    if unprintable := _UNPRINTABLE.search(text):
        raise _error(file, _about_unprintable(unprintable[0]), *_line_and_column(text, unprintable.start()))
    try:
        if _PROPERTY.search(text):
            _refuse_properties(file, text)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise DefinitionError([_syntax_problem(file, text, error)]) from error
    except yaml.YAMLError as error:
        raise _error(file, f"is not YAML: {error}") from error
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value and not root.style):
        raise _error(file, "is empty: write `version: 1` and `schedules:`, or delete the file", 1, 1)
    builder = _Builder(file)
    value = builder.build(root, 1)
    return Document(file, text, value, tuple(builder.problems))


@dataclass
class _Builder:
    """Turns nodes into values; notes what it refuses and goes on, so that one reading shows all problems."""

    file: str

    def __post_init__(self) -> None:
        self.problems: list[Problem] = []

    def build(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else self._plain(node)
        if depth > DEPTH_LIMIT:
            raise DefinitionError([self._problem(node, f"is nested more than {DEPTH_LIMIT} levels deep: flatten it")])
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, depth + 1) for item in node.value]
        return self._mapping(node, depth)

    def _mapping(self, node: yaml.Node, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        places: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            value = self.build(value_node, depth + 1)
            key = self._key(key_node)
            if key is None:
                continue
            if key in places:
                first = places[key].start_mark.line + 1
                self._note(key_node, f'the key "{key}" stands here again (first at line {first}): keep one of them')
                continue
            values[key], places[key] = value, key_node
        return values

    def _key(self, node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._note(node, "a key must be text, not a list or mapping")
            return None
        text: str = node.value
        if node.style or (text[:1].isalpha() and text not in _WORDS):
            return text
        if text == "<<":
            self._note(node, "merge keys (<<) are not read: use `defaults:` or write the fields out")
            return None
        if not isinstance(self._plain(node), str):
            self._note(node, f'a key must be text: write "{text}" in quotes')
            return None
        return text

    def _plain(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in "+-.0123456789":
            return text
        if _INTEGER.fullmatch(text):
            if len(text) <= _DIGITS_LIMIT:
                return int(text)
            self._note(node, f"a number of {len(text):,} digits cannot be kept exactly: write it in quotes")
            return text
        if _FLOAT.fullmatch(text):
            if len(text) <= _DIGITS_LIMIT and math.isfinite(number := float(text)):
                return number
            self._note(node, f"{text[:40]} is too large for a number: write it in quotes to keep it as text")
        return text

    def _note(self, node: yaml.Node, message: str) -> None:
        self.problems.append(self._problem(node, message))

    def _problem(self, node: yaml.Node, message: str) -> Problem:
        mark = node.start_mark
        return Problem(message=visible(message), file=self.file, line=mark.line + 1, column=mark.column + 1)


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == step:
                return key_node, value_node
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None


def _refuse_properties(file: str, text: str) -> None:
    """Raise DefinitionError if ``text`` uses anchors, aliases or tags."""
    events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
    problems = [
        Problem(message=visible(message), file=file, line=event.start_mark.line + 1, column=event.start_mark.column + 1)
        for event in events
        for message in _property_refusals(event)
    ]
    if problems:
        raise DefinitionError(problems)


def _property_refusals(event: Any) -> Iterator[str]:
    if isinstance(event, yaml.AliasEvent):
        yield f"*{event.anchor} is read as an alias, and aliases are refused: write the value out, or quote the text"
    elif getattr(event, "anchor", None):
        yield f"&{event.anchor} is read as an anchor, and anchors are refused: use `defaults:`, or quote the text"
    if getattr(event, "tag", None):
        yield "tags (text starting with !) are refused: remove it, or quote the text"


def _syntax_problem(file: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    """The parser's complaint, in words that say what to write where we know them."""
    mark = error.problem_mark or error.context_mark
    if error.context_mark and error.context in ("while scanning an alias", "while scanning a quoted scalar"):
        mark = error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines() or [""]
    rest = lines[line][column:] if line < len(lines) else ""
    if line >= len(lines):
        line, column = len(lines) - 1, max(0, len(lines[-1]) - 1)
    message = _syntax_message(rest, str(error.context or ""), str(error.problem or ""))
    return Problem(message=visible(message), file=file, line=line + 1, column=column + 1)


def _syntax_message(rest: str, context: str, problem: str) -> str:
    value = re.sub(r"\s+#.*", "", rest).rstrip()[:80]
    if rest[:1] == "\t":
        return "a tab cannot indent YAML: use spaces"
    if rest[:1] in ("*", "@", "%", "`", "&", "!") and rest:
        what = "the expression" if rest[0] in "*@" else "the text"
        return f'text that starts with {rest[0]} needs quotes: put {what} in quotes, "{value}"'
    if "expected a single document" in problem or "expected a single document" in context:
        return "a second document starts here: one document a file, so move what follows `---` into a file of its own"
    if "did not find expected ',' or" in problem:
        return 'a comma or bracket is missing before this, or text with ": " or "," needs quotes'
    if "mapping values are not allowed" in problem:
        return 'a value that contains ": " needs quotes, and a nested key needs a line of its own'
    if context == "while scanning a quoted scalar" and "end of stream" in problem:
        return "the quote that opens here is never closed"
    if context.startswith("while parsing a flow") and not rest:
        return "the text ends inside brackets: close [ with ] and { with }"
    if "nesting depth" in problem:
        return f"is nested more than {DEPTH_LIMIT} levels deep: flatten it"
    if "duplicate anchor" in problem or "undefined alias" in problem:
        return "anchors and aliases are refused: write the value out"
    if "invalid Unicode character escape" in problem:
        return "this escape is not a character: write the character itself, or \\U0001F600 for one beyond \\uFFFF"
    return "is not YAML: " + ", ".join(part for part in (context, problem) if part)


def _about_unprintable(character: str) -> str:
    name = f"U+{ord(character):04X}"
    if character == "\ufeff":
        return f"an invisible byte order mark ({name}) stands here: remove it"
    return f'the character {name} cannot stand in YAML: remove it, or write "\\u{ord(character):04x}" in quotes'


def _line_and_column(text: str, index: int) -> tuple[int, int]:
    line_start = max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)) + 1
    return len(re.findall("\r\n|\r|\n", text[:line_start])) + 1, index - line_start + 1


def _error(file: str, message: str, line: int | None = None, column: int | None = None) -> DefinitionError:
    return DefinitionError([Problem(message=visible(message), file=file, line=line, column=column)])
