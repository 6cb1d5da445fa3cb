"""The documentation does what it says: its links lead somewhere, its snippets run. ``pages`` says how they are read."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from scheduler.core.models import DefinitionSet
from scheduler.errors import DefinitionError
from scheduler.handlers import REGISTRY
from scheduler.services.definitions import load_definitions
from tests.docs.pages import KINDS, REPOSITORY, Page, Snippet, pages, whole_file
from tests.support.cli import sched
from tests.support.database import connect
from tests.support.drivers import url

TODAY = date(2026, 6, 1)

NOT_RUN = {"docs/pg-cron.md": "needs a server with pg_cron"}
"""Pages whose snippets the tests cannot run at all."""

MOST_NOT_RUN = 12
"""How many snippets may be marked ``no-run``, in all pages."""

RUNNABLE = {"sh", "sql", "python", "output"}


def by_name(page: Page) -> str:
    return page.name


def stories() -> list[Page]:
    """Pages with something to run."""
    return [
        page
        for page in pages()
        if page.name not in NOT_RUN
        and any(snippet.kind in RUNNABLE and "no-run" not in snippet.words for snippet in page.snippets)
    ]


@pytest.mark.parametrize("page", pages(), ids=by_name)
def test_every_link_leads_somewhere(page: Page) -> None:
    others = {other.path: other for other in pages()}
    dead = []
    for link in page.links:
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path = (page.path.parent / target).resolve() if target else page.path
        if not path.exists() or (anchor and anchor not in others[path].anchors):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", pages(), ids=by_name)
def test_every_snippet_is_of_a_kind_we_know(page: Page) -> None:
    unknown = {f"{page.name}:{snippet.line}: {snippet.kind}" for snippet in page.snippets if snippet.kind not in KINDS}
    assert unknown == set()


def test_few_snippets_are_not_run() -> None:
    left_out = [
        f"{page.name}:{snippet.line}"
        for page in pages()
        if page.name not in NOT_RUN
        for snippet in page.snippets
        if "no-run" in snippet.words
    ]
    assert len(left_out) <= MOST_NOT_RUN, left_out


def test_every_page_is_linked_from_the_index_or_from_a_page_that_is() -> None:
    by_path = {page.path: page for page in pages()}
    reached, waiting = set(), [REPOSITORY / "docs" / "index.md"]
    while waiting:
        path = waiting.pop()
        if path in reached or path not in by_path:
            continue
        reached.add(path)
        waiting += [(path.parent / link.partition("#")[0]).resolve() for link in by_path[path].links if link[0] != "#"]
    lonely = {page.name for page in pages() if page.path not in reached and page.name != "README.md"}
    assert lonely == set()


@pytest.mark.parametrize("page", [page for page in pages() if "```yaml" in page.text], ids=by_name)
def test_every_definition_loads_or_is_refused_as_marked(page: Page, tmp_path: Path) -> None:
    for snippet in page.snippets:
        if snippet.kind != "yaml":
            continue
        where = f"{page.name}:{snippet.line}"
        if "refused" in snippet.words:
            with pytest.raises(DefinitionError):
                load(snippet, tmp_path)
            continue
        try:
            assert load(snippet, tmp_path).owners, where
        except DefinitionError as error:
            pytest.fail(f"{where}: {error}")


@pytest.mark.parametrize("page", stories(), ids=by_name)
def test_the_snippets_of_a_page_run(page: Page, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(page, database, tmp_path)
    prepare(monkeypatch, database, tmp_path)
    try:
        for snippet in page.snippets:
            story.tell(snippet)
    finally:
        for name in story.modules:
            sys.modules.pop(name, None)


def prepare(monkeypatch: pytest.MonkeyPatch, database: str, folder: Path) -> None:
    """This process as a shell in ``folder`` on that database, without handlers of other pages."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("SCHED_DSN", database)
    monkeypatch.setenv("DATABASE_URL", url(database, "postgresql+psycopg"))
    monkeypatch.setenv("SCHED_ACTOR", "docs")
    monkeypatch.setattr(REGISTRY, "_handlers", {})


def load(snippet: Snippet, folder: Path) -> DefinitionSet:
    """The definitions of a snippet."""
    place = folder / f"line-{snippet.line}"
    place.mkdir()
    (place / "snippet.yaml").write_text(whole_file(snippet.text))
    return load_definitions(place, today=TODAY)


class Story:
    """Tells a page: does what its snippets say, one after the other."""

    def __init__(self, page: Page, database: str, folder: Path) -> None:
        self._page = page
        self._database = database
        self._folder = folder
        self._printed = ""
        self.modules: set[str] = set()

    def tell(self, snippet: Snippet) -> None:
        """Do what one snippet says."""
        where = f"{self._page.name}:{snippet.line}"
        if "no-run" in snippet.words:
            return
        if snippet.path is not None:
            self._write(snippet.path, whole_file(snippet.text) if snippet.kind == "yaml" else snippet.text)
        match snippet.kind:
            case "sh":
                self._run_lines(snippet, where)
            case "sql":
                with connect(self._database) as connection:
                    connection.execute(snippet.text)
            case "python":
                code = compile(snippet.text, where, "exec")
                if snippet.path is None:
                    exec(code, {"__name__": f"snippet_{snippet.line}"})
            case "output":
                assert matches(snippet.text, self._printed), f"{where}: the command prints\n{self._printed}"

    def _write(self, name: str, text: str) -> None:
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if name.endswith(".py"):
            self.modules.add(name.removesuffix(".py").replace("/", "."))

    def _run_lines(self, snippet: Snippet, where: str) -> None:
        for line in snippet.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            expected = int(found[1]) if (found := re.search(r"# .*exit code (\d)", line)) else 0
            if words[0] == "sched":
                ended = sched(*words[1:])
                code, self._printed, said = ended.code, ended.out, ended.err
            else:
                done = subprocess.run(["/bin/sh", "-ec", line], capture_output=True, text=True, check=False)
                code, self._printed, said = done.returncode, done.stdout, done.stderr
            assert code == expected, f"{where}: {line}\nexit code {code}\n{self._printed}{said}"


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; ``...`` stands for anything, blanks at line ends do not count."""
    pattern = ".*".join(re.escape(part) for part in _stripped(shown).split("..."))
    return re.fullmatch(pattern, _stripped(printed), re.DOTALL) is not None


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
