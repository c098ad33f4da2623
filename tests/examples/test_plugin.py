"""examples/plugin: installed in a virtual environment of its own, found there by its entry point, checked by mypy."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import millrace

from .conftest import EXAMPLES

PLUGIN = EXAMPLES / "plugin"


def run(*command: str | Path, folder: Path) -> str:
    """Run a command to its end, without the paths of this environment; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment that has the packages of this one, and the plug-in."""
    folder = tmp_path_factory.mktemp("plugin")
    copy = shutil.copytree(PLUGIN, folder / "plugin")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    shared = [str(Path(millrace.__file__).parents[1]), *site.getsitepackages()]
    (packages / "shared.pth").write_text("\n".join(shared))
    install = ("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", str(copy))
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), *install, folder=folder)
    return python


@pytest.mark.long
@pytest.mark.timeout(600)  # two starts of Spark
def test_its_tests_pass_where_it_is_installed(environment: Path, tmp_path: Path, quick_starts: None) -> None:
    tests = shutil.copytree(PLUGIN / "tests", tmp_path / "tests")
    printed = run(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, folder=tmp_path)
    assert "3 passed" in printed


def test_it_is_not_found_where_it_is_not_installed() -> None:
    from millrace.connectors.base.registry import connector_names

    assert "sqlite" not in connector_names()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_mypy_accepts_it(environment: Path, tmp_path: Path) -> None:
    options = ("--strict", "--config-file=", "--cache-dir", str(tmp_path))  # no file of a folder above is read
    run(environment, "-m", "mypy", *options, "-p", "millrace_sqlite", folder=tmp_path)
