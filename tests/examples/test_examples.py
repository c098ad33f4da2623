"""Every example is listed, tested, sound and made as it says."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from millrace.cli.main import app

from .conftest import EXAMPLES, commands

NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if (folder / "pipeline.py").exists())
_CHECK_ALL = """
import sys
from millrace.connectors.base.registry import CONNECTORS
from millrace.pipeline.checks import check
from millrace.pipeline.loading import load
for file in sys.argv[1:]:
    for problem in check(load(file), CONNECTORS):
        print(file, problem.severity, problem.condition)
"""


def test_every_example_is_listed_and_has_its_parts_and_a_test() -> None:
    table = re.findall(r"^\| \[([\w-]+)\]\(\1\) \|", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(table) == NAMES
    assert {path.parent.name for path in EXAMPLES.glob("*/*.yaml")} == {*NAMES, "nexmark"}
    for name in NAMES:
        for part in ("pipeline.py", "pipeline.yaml", "data"):
            assert (EXAMPLES / name / part).exists(), f"{name}: {part}"
        test = (Path(__file__).parent / f"test_{name.replace('-', '_')}.py").read_text("utf-8")
        assert f'stage.run("{name}"' in test


@pytest.mark.parametrize("name", NAMES)
def test_a_readme_says_what_it_teaches_how_to_run_it_and_what_one_sees(name: str) -> None:
    page = EXAMPLES / name / "README.md"
    text = page.read_text("utf-8")
    assert "teaches" in text
    assert re.findall(r"^## .*", text, re.MULTILINE)[:2] == ["## Run it", "## What you see"]
    assert any(line.startswith(f"millrace run examples/{name}/pipeline.") for line in commands(page))


@pytest.mark.parametrize("name", [".", "dstreams", "nexmark", *NAMES])
def test_the_commands_of_a_readme_exist_with_their_options_and_files(name: str) -> None:
    for line in commands(EXAMPLES / name / "README.md"):
        for arguments in millrace_calls(line):
            assert_parses(arguments)
        for path in re.findall(rf"examples/[\w./-]*{name}/[\w./-]+", line):
            made = "/out" in path or path.endswith("again.json")
            assert made or (EXAMPLES.parent / path).exists(), line


def millrace_calls(line: str) -> Iterator[list[str]]:
    """The arguments of each `millrace` in a line."""
    words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    for first, word in enumerate(words):
        if word == "millrace":
            yield list(takewhile(lambda one: one not in ("|", "<", ">"), words[first + 1 :]))


def assert_parses(arguments: list[str]) -> None:
    """Parse a command as the program does, and stop there; an unknown command or option raises."""
    command: Any = get_command(app)
    context = command.make_context("millrace", list(arguments))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


def test_check_finds_nothing_wrong() -> None:
    """In a process of its own, where no Spark runs: a file that asks for one would not load."""
    files = [str(EXAMPLES / name / f"pipeline.{form}") for name in NAMES for form in ("py", "yaml")]
    checked = subprocess.run(
        [sys.executable, "-c", _CHECK_ALL, *files],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    told = [line.split(maxsplit=1) for line in checked.stdout.splitlines()]
    assert {problem for _, problem in told} <= {"warning state.aggregation"}, checked.stdout


def test_the_generated_data_is_what_the_program_makes(tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / "make_data.py"))["main"](tmp_path)
    made = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(made) == 8
    for file in made:
        assert file.read_bytes() == (EXAMPLES / file.relative_to(tmp_path)).read_bytes(), file
