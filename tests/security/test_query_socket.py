"""`millrace query` is answered to the account of the run, and to no other one of the machine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.engine.memory_sql import MemorySql, QueryServer, ask_run

NOBODY = 65534
# All is loaded before the account is changed: the other one may not be able to read this Python.
CONNECT = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    connection.connect(sys.argv[1])
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state folder that every account may enter: the socket must hold by itself."""
    assert os.geteuid() == 0, (
        "this test acts as another account: run it as root, or in `unshare --map-root-user --map-auto`"
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o777)
        yield folder


def connecting(address: str, uid: int) -> str:
    """What becomes of a connection that an account tries to make."""
    command = [sys.executable, "-c", CONNECT, address, str(uid)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_another_account_cannot_connect(folder: Path) -> None:
    before = os.umask(0)
    try:
        with QueryServer(MemorySql(), folder):
            note = folder / "query.json"
            address = json.loads(note.read_text("utf-8"))["socket"]
            assert connecting(address, NOBODY) == "PermissionError"
            assert connecting(address, os.geteuid()) == "connected", "so it is not for another reason"
            assert stat.S_IMODE(note.stat().st_mode) == 0o600
            assert ask_run(folder, "SELECT 1 AS one", 1)["rows"] == [[1]]
    finally:
        os.umask(before)
