"""A file has its old content or its new one, whatever happens in between."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from millrace.atomic_files import AtomicFile, write_whole


def test_a_file_and_its_folder_are_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.json"
    write_whole(path, "größer")
    write_whole(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert list(path.parent.iterdir()) == [path]


def test_a_private_one_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o644)
    write_whole(path, "x", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_others_may_read_what_is_not_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "shown", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "shown").stat().st_mode) == 0o644


def test_what_was_begun_and_failed_leaves_the_old_content_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_whole(path, "old")
    draft = AtomicFile(path)
    draft.file.write(b"ne")
    draft.__exit__(ValueError, ValueError("half"), None)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_it_has_its_name_only_when_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    write_whole(path, "old")

    def full(_: int) -> None:
        assert path.read_text() == "old"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
