"""Our own Cassandra: it keeps its data, guards its folder, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from millrace.errors import CassandraInUse, CassandraMismatch, FileUnusable, NoCassandra, PortInUse, ServiceFailed
from millrace.services import cassandra
from millrace.services.cassandra import CassandraOptions, CassandraService

SMALL = CassandraOptions(heap="256m")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the Cassandra of this file, started again and again; its name has letters of every kind."""
    return tmp_path_factory.mktemp("ring") / 'josé & "söhne" <ключ>'


def assert_ended(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        return


@pytest.mark.chaos
def test_a_killed_parent_takes_it_along_and_its_data_stays(folder: Path) -> None:
    program = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from millrace.services.cassandra import CassandraOptions, CassandraService
        door = CassandraService(Path({str(folder)!r}), CassandraOptions(heap="256m")).start()
        copies = "{{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        door.execute("CREATE KEYSPACE kept WITH replication = " + copies)
        door.execute("CREATE TABLE kept.t (k int PRIMARY KEY)")
        door.execute("INSERT INTO kept.t (k) VALUES (1)")
        print("up", door.address, flush=True)
        time.sleep(600)
    """)  # noqa: S608
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        up, address = parent.stdout.readline().decode().split()
        ring = cassandra.running(folder)
        assert up == "up"
        assert ring
        assert ring.process
        with pytest.raises(CassandraInUse) as caught:
            CassandraService(folder, SMALL).start()
        assert str(ring.process.pid) in str(caught.value.why)
        os.kill(parent.pid, signal.SIGKILL)
    assert_ended(ring.process.pid)
    service = CassandraService(folder, replace(SMALL, detach=True))  # the lock went with it
    try:
        door = service.start()
        assert door.address == address
        assert door.execute("SELECT k FROM kept.t") == [(1,)]
        assert list(folder.parent.iterdir()) == [folder]
        cassandra.stop(folder)
        assert cassandra.running(folder) is None
    finally:
        service.stop()
    with pytest.raises(NoCassandra):
        cassandra.stop(folder)


def test_a_taken_port_is_refused(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortInUse):
            CassandraService(folder, CassandraOptions(port=taken.getsockname()[1])).start()


def test_a_start_that_fails_is_quoted_from_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServiceFailed) as caught:
        CassandraService(tmp_path, CassandraOptions(heap="1k")).start()
    assert "heap" in str(caught.value.why).lower()
    assert cassandra.running(tmp_path) is None


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CassandraMismatch):
        CassandraService(tmp_path).start()
    with pytest.raises(FileUnusable):
        CassandraService(tmp_path / "file" / "data").start()


def test_a_damaged_description(tmp_path: Path) -> None:
    (tmp_path / "cassandra.json").write_text('{"port": 7}')
    with pytest.raises(CassandraMismatch):
        CassandraService(tmp_path).start()
