"""Secrets from files, by a path and by a variable that names one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import millrace as mr
from millrace.errors import FileUnusable, InvalidDefinition
from millrace.pipeline.secret import Secret
from millrace.secret_files import exposure_warning, read_secret, read_variable_or_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("from-4-file\n")
    path.chmod(0o600)
    return path


def test_a_file_without_its_last_line_end(file: Path) -> None:
    assert read_secret(file) == "from-4-file"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "none", tmp_path, tmp_path / "bytes"):
        with pytest.raises(FileUnusable):
            read_secret(path)


def test_a_variable_or_the_file_that_another_names(file: Path) -> None:
    assert read_variable_or_file("PW", {"PW_FILE": str(file)}) == "from-4-file"
    assert read_variable_or_file("PW", {"PW_FILE": str(file), "PW": "itself"}) == "itself"
    assert read_variable_or_file("PW", {}) is None


def test_what_everybody_can_read(file: Path) -> None:
    assert exposure_warning(file) is None
    file.chmod(0o644)
    assert f"chmod 600 {file}" in (exposure_warning(file) or "")


def test_secrets_in_python(file: Path, set_environment: Callable[..., None]) -> None:
    set_environment(PW="from-7he-environment", NONE=None)
    for found, value in ((mr.secret("PW"), "from-7he-environment"), (mr.secret(file=file), "from-4-file")):
        assert isinstance(found, Secret)
        assert found == value
        assert value not in repr(mr.kafka("t", config={"group.id": found}))
    for wrong in (lambda: mr.secret("NONE"), mr.secret, lambda: mr.secret("PW", file=file)):
        with pytest.raises(InvalidDefinition):
            wrong()
