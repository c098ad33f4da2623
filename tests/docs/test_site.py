"""The site is whole and loads nothing from elsewhere; its reference is the code, its pictures are what was seen."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pictures
import pictures_run
import pytest
import reference
from reference_commands import commands

from docs.test_checks import conditions
from docs.test_documentation import LONG, PAGES, blocks, tree
from millrace import errors
from millrace.connectors.base.api import SINKS, SOURCES
from millrace.errors import MillraceError

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']((?:https?:)?//[^"']+)""")
UNSUNG = {"docs/dashboard.md", "docs/pipelines.md"}
"""Pages whose commands need what only a reader has: a page that is up, a file from above."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, made as `make docs` makes it; a broken link, anchor or menu fails."""
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(ROOT / "mkdocs.yml")]
    ran = subprocess.run([*command, "--site-dir", str(made)], capture_output=True, text=True, check=False, cwd=made)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return made


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        where = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / where.with_name(where.name.replace("README", "index"))).is_file(), page


def test_nothing_comes_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text("utf-8")) == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", sheet.read_text("utf-8")) == [], sheet


def test_the_reference_is_what_the_code_says() -> None:
    assert reference.stale() == [], "run scripts/reference.py"


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    found = commands()
    assert {"millrace run", "millrace kafka topics create", "millrace feed posts"} <= {one.path for one in found}
    for command in found:
        section = re.split(rf"^#+ {command.path}\n", page, maxsplit=1, flags=re.MULTILINE)[1].split("\n#")[0]
        assert command.help, command.path
        for one in command.parameters:
            written = one.written.replace("|", r"\|")
            assert f"| `{written}` |" in section, (command.path, one.written)
            assert one.help, (command.path, one.written)


def test_every_condition_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/conditions.md").read_text("utf-8")
    ours = {kind.condition for kind in tree(MillraceError) if kind.__module__.startswith(f"{errors.__name__}.")}
    assert set(re.findall(r"^\| `([\w.-]+)` \|", page, re.MULTILINE)) == ours | conditions()


def test_every_connector_tells_its_guarantee() -> None:
    page = (ROOT / "docs/connectors.md").read_text("utf-8")
    for name in SINKS.names():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert re.search(r"^As a sink: .*Modes: .*Guarantee: \w+", section, re.MULTILINE), name
    schema = (ROOT / "docs/reference/yaml.md").read_text("utf-8")
    for name in (*SOURCES.names(), *SINKS.names()):
        assert f"[`{name}`](../connectors.md#{name})" in schema


def test_pictures_are_those_of_what_was_seen() -> None:
    drawn = pictures.pictures(json.loads(pictures.SEEN.read_text("utf-8")))
    assert [path.name for path, svg in drawn.items() if path.read_text("utf-8") != svg] == [], "run scripts/pictures.py"


def test_the_page_shows_the_run_of_the_picture() -> None:
    [script] = blocks("docs/explanation/event-time.md", "python")
    for times in pictures_run.BATCHES:
        assert " ".join(time.removeprefix("12:") for time in times) in script


def test_every_page_with_commands_is_followed() -> None:
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    shown = {page for page in pages if blocks(page, "console")}
    assert shown - {*PAGES, *LONG} == UNSUNG
