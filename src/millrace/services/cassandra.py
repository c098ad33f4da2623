"""A real Cassandra of our own: one node as a child process, bound to 127.0.0.1."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.clients.cassandra import Cassandra
from millrace.errors import (
    CassandraDenied,
    CassandraFailed,
    CassandraInUse,
    CassandraUnreachable,
    FileUnusable,
    NoCassandra,
    ServiceFailed,
)
from millrace.services import jars
from millrace.services.certificates import Certificates
from millrace.services.java import Java, find_java
from millrace.services.locks import FolderLock
from millrace.services.process import Child
from millrace.services.ring import USER, Ring
from millrace.settings import CASSANDRA_HEAP

START_TIMEOUT = 120.0
_TRIES = 3
_ENDING = 5.0
"""Seconds in which what guarded a node that was killed lets go of its folder."""
_LOOK = 0.1
_FIRST_USER = {"user": "cassandra", "password": "cassandra"}
"""Who a new Cassandra lets in."""


@dataclass(frozen=True)
class Options:
    """How it shall be; None leaves it as it was, or to the default for a new one."""

    port: int | None = None
    secure: bool | None = None
    heap: str = CASSANDRA_HEAP.default
    detach: bool = False


class Service:
    """A Cassandra in a folder. Use it as a context, or call `start` and `stop`.

    Unless detached its process ends with this one, however this one ends. The folder is locked while it lives.
    """

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder = folder.absolute()
        self.options = options or Options()
        self.ring: Ring | None = None
        self._child: Child | None = None
        self._lock: FolderLock | None = None

    def start(self, say: Callable[[str], None] | None = None, progress: jars.Progress | None = None) -> Cassandra:
        """Start it and wait until CQL is answered; leaves nothing behind when that fails."""
        tell = say or (lambda _: None)
        java = find_java()
        self._take_folder()
        try:
            before = Ring.load(self.folder)
            classpath = jars.ensure("cassandra", progress).classpath()
            for attempt in range(1, _TRIES + 1):
                try:
                    return self._start(java, classpath, self.ring or before, tell)
                except _PortTakenError as taken:
                    self._stop_child()
                    if self.options.port or attempt == _TRIES:
                        raise taken.failure from None
            raise AssertionError("unreachable")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it and wait."""
        if self.ring:
            Cassandra(self.ring.address).close()
        self._stop_child()
        if self._lock:
            self._lock.release()
            self._lock = None

    def kill(self) -> None:
        """End it at once, as a crash would; `start` brings it back with its data and its address."""
        if self._child:
            self._child.kill()
            self._child = None
        self._note(None)
        if self._lock:
            self._lock.release()
            self._lock = None

    def died(self) -> Child | None:
        """The process, if it has ended by itself."""
        return self._child if self._child and not self._child.running() else None

    @property
    def pid(self) -> int | None:
        """Its process."""
        return self._child.pid if self._child else None

    def door(self) -> Cassandra:
        """How clients reach it."""
        if self.ring is None:
            raise NoCassandra("this Cassandra has not been started")
        return door_of(self.folder, self.ring)

    def __enter__(self) -> Cassandra:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take_folder(self) -> None:
        Ring.load(self.folder)  # a folder that is not ours is left as it is
        try:
            lock = FolderLock(self.folder)
        except OSError as error:
            raise FileUnusable(f"cannot use the data folder {self.folder}", why=str(error)) from None
        if not lock.try_acquire(_ENDING):
            lock.release()
            raise _in_use(self.folder)
        self._lock = lock

    def _start(self, java: Java, classpath: str, before: Ring | None, tell: Callable[[str], None]) -> Cassandra:
        ring = self.ring = Ring.planned(before, self.options.port, self.options.secure)
        certificates = None
        if ring.secure:
            tell("making certificates")
            certificates = Certificates.ensure(self.folder / "tls", java)
            _write_properties(self.folder, _properties(ring, certificates))
        ring.save(self.folder)  # first, so that a start that fails can be tried again
        ring.write(self.folder, certificates)
        tell("starting Cassandra")
        self._child = Child(
            "Cassandra",
            ring.command(self.folder, java, classpath, self.options.heap),
            self.folder / "console.log",
            detach=self.options.detach,
            keep_fds=[self._lock.fd] if self._lock else [],
        )
        self._note(self._child)
        self._wait_until_ready()
        return self.door()

    def _note(self, child: Child | None) -> None:
        """Keep in cassandra.json which process it is, so that others can find and stop it."""
        if self.ring:
            self.ring = replace(self.ring, process=child.identity if child else None)
            self.ring.save(self.folder)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self._child and not self._child.running():
                raise self._start_failure(self._child)
            if self._answers():
                return
            time.sleep(_LOOK)
        if self._child:
            raise self._child.failure(f"Cassandra did not answer within {START_TIMEOUT:.0f} s")

    def _answers(self) -> bool:
        ring = self.ring
        if ring is None or not _listens(ring.port):
            return False
        try:
            if ring.secure and not ring.settled:
                self._settle(ring)
            door_of(self.folder, self.ring or ring).execute("SELECT release_version FROM system.local")
        except (CassandraUnreachable, CassandraFailed, CassandraDenied):
            return False  # it listens, and is not ready yet
        return True

    def _settle(self, ring: Ring) -> None:
        """The user that every new Cassandra has, whose password everybody knows, gives way to ours."""
        first = replace(door_of(self.folder, ring), options={**_read(self.folder), **_FIRST_USER})
        login = f"WITH PASSWORD = '{ring.password}' AND LOGIN = true AND SUPERUSER = true"
        first.execute(f"CREATE ROLE IF NOT EXISTS {USER} {login}", doing="add a user")
        first.close()
        door_of(self.folder, ring).execute("DROP ROLE IF EXISTS cassandra", doing="remove the first user")
        self.ring = replace(ring, settled=True)
        self.ring.save(self.folder)

    def _start_failure(self, child: Child) -> Exception:
        log = self.folder / "cassandra.log"
        failure = child.failure("Cassandra did not start", hint=f"the whole log is in {log}")
        taken = ("Address already in use", "is in use by another process", "Failed to bind port")
        return _PortTakenError(failure) if any(one in child.output() for one in taken) else failure

    def _stop_child(self) -> None:
        if self._child:
            self._child.stop()
            self._child = None
            self._note(None)


class _PortTakenError(Exception):
    def __init__(self, failure: ServiceFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


def door_of(folder: Path, ring: Ring) -> Cassandra:
    """How clients reach the Cassandra of a folder."""
    return Cassandra.at(ring.address, client_properties(folder) if ring.secure else None)


def client_properties(folder: Path) -> Path:
    """The file of client properties of a secure one."""
    return folder.absolute() / "client.properties"


def running(folder: Path) -> Ring | None:
    """The Cassandra that runs in a folder, or None when none does."""
    ring = Ring.load(folder) if (folder / "cassandra.json").exists() else None
    return ring if ring and ring.process and ring.process.process() else None


def stop(folder: Path) -> None:
    """Stop the Cassandra of a folder, whoever started it."""
    ring = running(folder)
    if ring is None or ring.process is None:
        raise NoCassandra(f"no Cassandra of ours runs in {folder}", hint="give its folder with --data")
    ring.process.stop()
    replace(ring, process=None).save(folder)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _in_use(folder: Path) -> CassandraInUse:
    ring = running(folder)
    pid = ring.process.pid if ring and ring.process else None
    return CassandraInUse(
        f"the data folder {folder} is in use",
        why=f"a Cassandra runs on it at {ring.address} (pid {pid})" if ring else "another process is starting on it",
        hint=f"use that one, stop it with millrace cassandra down --data {folder}, or choose another --data folder",
    )


def _properties(ring: Ring, certificates: Certificates) -> dict[str, str]:
    return {"user": USER, "password": ring.password, "tls.ca": str(certificates.authority)}


def _write_properties(folder: Path, properties: Mapping[str, str]) -> None:
    path = client_properties(folder)
    path.touch(mode=0o600)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), "utf-8")


def _read(folder: Path) -> dict[str, str]:
    from millrace.clients.properties import read_properties

    return read_properties(client_properties(folder))
