"""A file as a sink for records."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.clients.records import Record
from millrace.connectors.base import Target
from millrace.connectors.files import FileSink
from millrace.errors import FileUnusable, InvalidOption, MillraceError


def test_values_are_appended_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before\n")
    answers: list[MillraceError | None] = []
    sink = FileSink(Target(path=str(path)))
    sink.write([Record(b"a"), Record(None)], answers.append)
    assert path.read_bytes() == b"before\na\n\n"
    assert answers == [None]
    assert sink.close().delivered == 2


def test_a_path_is_needed() -> None:
    with pytest.raises(InvalidOption):
        FileSink(Target())


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable):
        FileSink(Target(path=str(tmp_path)))


def test_a_full_disk_is_a_failure() -> None:
    sink = FileSink(Target(path="/dev/full"))
    with pytest.raises(FileUnusable):
        sink.write([Record(b"x" * 100_000)], lambda _: None)
    with pytest.raises(FileUnusable):
        sink.close()
