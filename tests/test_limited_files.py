"""Files that have no end, and pipes that nothing comes from."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from millrace import limited_files
from millrace.limited_files import read_limited, read_limited_text, read_start


def test_a_file_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 200_000)
    assert read_limited(file, 200_000) == b"x" * 200_000
    assert read_start(file, 70_000) == b"x" * 70_000
    with pytest.raises(OSError, match="larger than 199,999 bytes"):
        read_limited(file, 199_999)


def test_lines_end_alike(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes("a\r\nb\rc\nä".encode())
    assert read_limited_text(file) == "a\nb\nc\nä" == file.read_text("utf-8")


def test_devices() -> None:
    assert read_limited("/dev/null") == b""
    with pytest.raises(OSError, match="larger than"):
        read_limited("/dev/zero")


def test_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 300_000,))
    writer.start()
    assert read_limited(pipe) == b"x" * 300_000
    writer.join()
    monkeypatch.setattr(limited_files, "_WAIT_S", 0.05)
    with pytest.raises(TimeoutError, match=r"nothing came from it within 0\.05s"):
        read_limited(pipe)


def test_an_unnamed_pipe_that_has_ended() -> None:
    source, sink = os.pipe()
    os.write(sink, b"secret\n")
    os.close(sink)
    assert read_limited(f"/dev/fd/{source}") == b"secret\n"
    assert read_limited(f"/dev/fd/{source}") == b""
    os.close(source)


def test_what_is_no_file(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError, match="directory"):
            read_limited(place)
