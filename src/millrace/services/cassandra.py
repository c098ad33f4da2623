"""A real Cassandra of our own: one node as a child process, bound to 127.0.0.1."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.clients.cassandra import Cassandra
from millrace.errors import CassandraDenied, CassandraFailed, CassandraInUse, CassandraUnreachable, NoCassandra
from millrace.services import embedded
from millrace.services.certificates import Certificates
from millrace.services.embedded import (
    Embedded,
    PortTakenError,
    Tell,
    client_properties,
    write_client_properties,
)
from millrace.services.java import Java
from millrace.services.process import Child
from millrace.services.ring import NODE, USER, Ring
from millrace.settings import CASSANDRA_HEAP

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


class Service(Embedded[Ring, Cassandra]):
    """A Cassandra in a folder."""

    name = "Cassandra"
    patience = 120.0
    ending = 5.0
    in_use = CassandraInUse
    none = NoCassandra

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.options = options or Options()
        super().__init__(folder, Ring, port=self.options.port, detach=self.options.detach)

    def stop(self) -> None:
        """Stop it and wait."""
        if self.layout:
            Cassandra(self.layout.address).close()
        super().stop()

    def kill(self) -> None:
        """End it at once, as a crash would; `start` brings it back with its data and its address."""
        self.kill_all()
        self._let_go()

    @property
    def pid(self) -> int | None:
        """Its process."""
        return self._children[NODE].pid if NODE in self._children else None

    def client(self) -> Cassandra:
        """How clients reach it."""
        return door_of(self.folder, self.known())

    def _start(self, java: Java, classpath: str, before: Ring | None, tell: Tell) -> None:
        ring = self.layout = Ring.planned(before, self.options.port, self.options.secure)
        certificates = None
        if ring.secure:
            tell("making certificates")
            certificates = Certificates.ensure(self.folder / "tls", java)
            write_client_properties(self.folder, _properties(ring, certificates))
        ring.save(self.folder)  # first, so that a start that fails can be tried again
        ring.write(self.folder, certificates)
        tell("starting Cassandra")
        command = ring.command(self.folder, java, classpath, self.options.heap)
        self._launch(NODE, "Cassandra", command, self.folder / "console.log")
        self._wait_until(self._answers)

    def _answers(self) -> bool:
        ring = self.known()
        try:
            if _listens(ring.port):
                if ring.secure and not ring.settled:
                    self._settle(ring)
                self.client().execute("SELECT release_version FROM system.local")
                return True
        except (CassandraUnreachable, CassandraFailed, CassandraDenied):
            pass  # it listens, and is not ready yet
        time.sleep(_LOOK)
        return False

    def _settle(self, ring: Ring) -> None:
        """The user that every new Cassandra has, whose password everybody knows, gives way to ours."""
        ours = self.client()
        first = replace(ours, options={**ours.options, **_FIRST_USER})
        login = f"WITH PASSWORD = '{ring.password}' AND LOGIN = true AND SUPERUSER = true"
        first.execute(f"CREATE ROLE IF NOT EXISTS {USER} {login}", doing="add a user")
        first.close()
        ours.execute("DROP ROLE IF EXISTS cassandra", doing="remove the first user")
        self.layout = replace(ring, settled=True)
        self.layout.save(self.folder)

    def _start_failure(self, child: Child) -> Exception:
        log = self.folder / "cassandra.log"
        failure = child.failure("Cassandra did not start", hint=f"the whole log is in {log}")
        taken = ("Address already in use", "is in use by another process", "Failed to bind port")
        return PortTakenError(failure) if any(one in child.output() for one in taken) else failure


def door_of(folder: Path, ring: Ring) -> Cassandra:
    """How clients reach the Cassandra of a folder."""
    return Cassandra.at(ring.address, client_properties(folder) if ring.secure else None)


def running(folder: Path) -> Ring | None:
    """The Cassandra that runs in a folder, or None when none does."""
    return Ring.running(folder)


def stop(folder: Path) -> None:
    """Stop the Cassandra of a folder, whoever started it."""
    embedded.stop(Service, Ring, folder)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _properties(ring: Ring, certificates: Certificates) -> dict[str, str]:
    return {"user": USER, "password": ring.password, "tls.ca": str(certificates.authority)}
