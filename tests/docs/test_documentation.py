"""What the documentation says is run, and what exists is documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from millrace import errors
from millrace.errors import MillraceError
from millrace.feeds.base.api import FEEDS
from millrace.services.jars import jar_sets
from millrace.settings import SETTINGS

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/feeds.md")
LONG = (
    "docs/cassandra.md",
    "docs/dead-letters.md",
    "docs/exec.md",
    "docs/explanation/event-time.md",
    "docs/explanation/guarantees.md",
    "docs/explanation/output-modes.md",
    "docs/extending.md",
    "docs/init.md",
    "docs/jars.md",
    "docs/kafka.md",
    "docs/plan.md",
    "docs/replay.md",
    "docs/supervision.md",
    "docs/testing.md",
    "docs/tutorial.md",
)
"""Pages that `make chaos` follows: what they show has tests of its own."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [text for kind, text in BLOCK.findall((ROOT / page).read_text("utf-8")) if kind == language]


def commands(block: str) -> list[str]:
    """The `$ millrace …` lines of a block, what is piped into it, and where it goes on, in order."""
    lines = [line.removeprefix("$ ") for line in block.splitlines()]
    return [line for line in lines if ("millrace " in line and "spark-submit" not in line) or line.startswith("cd ")]


def run(command: str, folder: Path) -> None:
    """Run a line as a user would, in a folder."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MILLRACE_KAFKA", "MILLRACE_CASSANDRA"))
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"


def stop_what_is_left(folder: Path) -> None:
    """Stop the brokers and the Cassandra that a failed page left behind."""
    from millrace.services import cassandra, kafka

    for cluster in folder.rglob("cluster.json"):
        if kafka.running(cluster.parent):
            kafka.stop(cluster.parent)
    for ring in folder.rglob("cassandra.json"):
        if cassandra.running(ring.parent):
            cassandra.stop(ring.parent)


def follow(page: str, folder: Path) -> None:
    """Make the files of a page and run its commands, in order."""
    here, ran = folder, 0
    try:
        for kind, text in BLOCK.findall((ROOT / page).read_text("utf-8")):
            if kind in ("python", "yaml") and text.startswith("# "):
                (here / text.splitlines()[0].removeprefix("# ")).write_text(text)
            for command in commands(text) if kind == "console" else ():
                if command.startswith("cd "):
                    here /= command.removeprefix("cd ")
                else:
                    run(command, here)
                    ran += 1
    finally:
        stop_what_is_left(folder)
    assert ran >= 2


@pytest.fixture(scope="module")
def followed(quick_starts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Every page, followed by a reader of its own: most of the time they wait."""
    with ThreadPoolExecutor(3) as readers:
        yield {page: readers.submit(follow, page, tmp_path_factory.mktemp("page")) for page in PAGES}


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", LONG)
def test_the_commands_of_a_long_page_work(page: str, quick_starts: None, tmp_path: Path) -> None:
    follow(page, tmp_path)


@pytest.mark.timeout(900)  # a page is many commands
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page: str, followed: dict[str, Future[None]]) -> None:
    followed[page].result()


def tree(kind: type[MillraceError]) -> list[type[MillraceError]]:
    """An error class and all below it."""
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


def test_every_condition_is_documented_with_its_exit_code() -> None:
    rows = dict(re.findall(r"^\| `([\w.-]+)` \| (\d) \|", (ROOT / "docs/errors.md").read_text("utf-8"), re.MULTILINE))
    kinds = [kind for kind in tree(MillraceError) if kind.__module__.startswith(f"{errors.__name__}.")]
    ours = {kind.condition: str(kind.exit_code) for kind in kinds}
    assert rows == ours


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+)\s+(\d)\s+([a-z0-9.-]+)?", errors.__doc__ or "")
    leaves = {name: (code, condition) for name, code, condition in drawn if name not in ("InputError", "RunError")}
    ours = {
        kind.__name__: (str(kind.exit_code), kind.condition)
        for kind in tree(MillraceError)
        if kind.__name__ not in ("MillraceError", "InputError", "RunError")
    }
    assert leaves == ours


def test_every_error_is_found_by_its_name() -> None:
    """Those who carry one out of a worker send no more than that."""
    kinds = [kind for kind in tree(MillraceError) if kind.__module__.startswith(f"{errors.__name__}.")]
    assert [kind for kind in kinds if getattr(errors, kind.__name__, None) is not kind] == []


def test_conditions_are_not_used_twice() -> None:
    conditions = [kind.condition for kind in tree(MillraceError)]
    assert len(conditions) == len(set(conditions))


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs/settings.md").read_text("utf-8")
    for setting in SETTINGS:
        assert f"| `{setting.variable}` |" in page
        assert setting.help in page


def test_every_feed_and_jar_set_is_documented() -> None:
    feeds = (ROOT / "docs/feeds.md").read_text("utf-8")
    for name in FEEDS.names():
        assert re.search(rf"^\| `{name}[` ]", feeds, re.MULTILINE), name
    jars = (ROOT / "docs/jars.md").read_text("utf-8") + (
        ROOT / "docs/decisions/0001-spark-and-connectors.md"
    ).read_text()
    for name in jar_sets():
        assert name in jars


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text("utf-8")
    for page in (ROOT / "docs/decisions").glob("0*.md"):
        assert page.name in index


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]*)?\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page}: {target}"
