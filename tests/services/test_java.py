"""The Java that is found, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import JavaUnusable
from millrace.services.java import find_java


def fake_java(folder: Path, version: str) -> Path:
    """A program that answers `-version` as a Java does."""
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    path.chmod(0o755)
    return path


def test_the_machines_java_is_found() -> None:
    assert find_java().major >= 17


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_versions_are_read(tmp_path: Path, set_environment: Callable[..., None], version: str, major: int) -> None:
    set_environment(MILLRACE_JAVA=str(fake_java(tmp_path, version)))
    assert find_java().major == major


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2", "16"])
def test_too_old(tmp_path: Path, set_environment: Callable[..., None], version: str) -> None:
    set_environment(MILLRACE_JAVA=str(fake_java(tmp_path, version)))
    with pytest.raises(JavaUnusable):
        find_java()


def test_none_anywhere(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_JAVA=None, JAVA_HOME=None, PATH=str(tmp_path))
    with pytest.raises(JavaUnusable):
        find_java()


def test_not_a_java(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho no\n")
    program.chmod(0o755)
    set_environment(MILLRACE_JAVA=str(program))
    with pytest.raises(JavaUnusable):
        find_java()


def test_java_home_comes_before_the_path(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    (tmp_path / "bin").mkdir()
    set_environment(MILLRACE_JAVA=None, JAVA_HOME=str(tmp_path))
    java = fake_java(tmp_path / "bin", "19")
    assert find_java().path == java
