"""Type checkers see the functions that pipelines in Python call, and accept every example."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mypy import api

import millrace

from .conftest import EXAMPLES

FILES = [path for path in sorted(EXAMPLES.glob("*/*.py")) if "millrace" in path.read_text("utf-8")]
CACHE = EXAMPLES.parent / ".mypy_cache" / "examples"
"""Kept between runs: mypy looks at PySpark's types for half a minute."""
OPTIONS = ("--config-file=", "--check-untyped-defs", "--follow-imports=silent", "--no-error-summary")


@pytest.fixture
def mypy_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MypyErrors:
    """Return a function that runs mypy over files in a folder and returns its errors."""
    modules = Path(millrace.__file__).parents[1]
    monkeypatch.setenv("MYPYPATH", f"{modules}:{EXAMPLES / 'console-foreach'}")
    return MypyErrors(tmp_path)


class MypyErrors:
    """Mypy over some files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *files: Path) -> list[str]:
        report, failure, _ = api.run([*OPTIONS, f"--cache-dir={CACHE}", *map(str, files)])
        assert not failure, failure
        return report.splitlines()


@pytest.mark.timeout(600)
def test_every_example_passes(mypy_errors: MypyErrors) -> None:
    """Each file gets a module name of its own: most of them are called pipeline.py."""
    copies = [mypy_errors.folder / f"{path.parent.name}_{path.name}".replace("-", "_") for path in FILES]
    for path, copy in zip(FILES, copies, strict=True):
        shutil.copy(path, copy)
    assert mypy_errors(*copies) == []


@pytest.mark.timeout(600)
def test_mistakes_in_a_call_are_found(mypy_errors: MypyErrors) -> None:
    file = mypy_errors.folder / "wrong.py"
    file.write_text(
        "import millrace as mr\n"
        'mr.kafka("posts", no_such_option=1) if False else mr.console(row=1)\n'
        'mr.console(rows="twenty")\n'
        'mr.kafka("posts", on_data_loss="go_on")\n'
        "mr.top(label=1)\n"
        'mr.sqlite("a plug-in", table="posts")\n'
    )
    errors = mypy_errors(file)
    assert [error.split(":")[1] for error in errors if ": error:" in error] == ["2", "3", "4", "5", "5"]
