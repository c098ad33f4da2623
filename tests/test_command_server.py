"""The process that runs commands for tests gives each command what a new process would have."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_server import CommandServer


@pytest.fixture
def server() -> Iterator[CommandServer]:
    """A server of this test's own."""
    server = CommandServer()
    yield server
    server.stop()


def test_a_command_has_its_arguments_folder_environment_and_streams(server: CommandServer, tmp_path: Path) -> None:
    environment = os.environ | {"MILLRACE_KAFKA_TIMEOUT": "soon"}
    status, out, err = server.run(["settings"], b"", tmp_path, environment, 60)
    assert (status, out) == (2, b"")
    assert b"MILLRACE_KAFKA_TIMEOUT" in err
    (tmp_path / "p.py").write_text("print('from the file')\n")
    status, out, _ = server.run(["exec", "p.py"], b"", tmp_path, dict(os.environ), 60)
    assert (status, out) == (0, b"from the file\n")


def test_a_command_that_does_not_end_leaves_the_next_one_right(server: CommandServer, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("import time\ntime.sleep(1000)\n")
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(["exec", "p.py"], b"", tmp_path, dict(os.environ), 1)
    assert server.run(["--version"], b"", tmp_path, dict(os.environ), 60)[0] == 0
    assert server.run(["nonsense"], b"", tmp_path, dict(os.environ), 60)[0] == 2
