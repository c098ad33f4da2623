"""A real Cassandra of our own: one node as a child process, bound to 127.0.0.1.

- `CassandraNode`: the node on disk, with its ports, its configuration and the command of its Java.
- `CassandraService` starts, kills and stops it, and replaces the user of a new Cassandra by ours.
- `running`, `stop` and `client_of` find the Cassandra of a folder from another program.
"""

from __future__ import annotations

import secrets
import socket
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import yaml

from millrace.clients.cassandra import Cassandra
from millrace.errors import (
    CassandraDenied,
    CassandraFailed,
    CassandraInUse,
    CassandraMismatch,
    CassandraUnreachable,
    NoCassandra,
    ServiceFailed,
)
from millrace.services.certificates import Certificates
from millrace.services.java import Java
from millrace.services.lifecycle import Description, Embedded, Notify, client_properties, stop_service
from millrace.services.process import Child, Identity, preferred_or_free_port, require_free
from millrace.settings import CASSANDRA_HEAP

CASSANDRA_USER = "millrace"
NODE = 1
"""The number of its only process."""
_LOGBACK = """<configuration scan="false">
  <shutdownHook class="ch.qos.logback.core.hook.DefaultShutdownHook"/>
  <appender name="file" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>{log}</file>
    <rollingPolicy class="ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>{log}.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>3</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>10MB</maxFileSize>
    </triggeringPolicy>
    <encoder><pattern>%d{{ISO8601}} %-5level %logger{{0}} %msg%n</pattern></encoder>
  </appender>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <filter class="ch.qos.logback.classic.filter.ThresholdFilter"><level>ERROR</level></filter>
    <encoder><pattern>%-5level %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/><appender-ref ref="console"/></root>
</configuration>
"""
_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
)
_OPENS = (
    *(f"java.base/jdk.internal.{name}" for name in ("loader", "ref", "reflect", "math", "module", "util.jar")),
    *(f"java.base/java.{name}" for name in ("lang", "lang.module", "lang.reflect", "io", "nio", "util")),
    *(f"java.base/java.util.{name}" for name in ("concurrent", "concurrent.atomic")),
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
    "jdk.compiler/com.sun.tools.javac",
)


@dataclass(frozen=True)
class CassandraNode(Description):
    """What `cassandra.json` holds: one node."""

    file = "cassandra.json"
    what = "Cassandra"
    mismatch = CassandraMismatch

    port: int
    storage_port: int
    process: Identity | None = None
    settled: bool = False
    """Whether a secure one has its user."""

    @classmethod
    def parsed(cls, content: dict[str, Any]) -> CassandraNode:
        return cls(**content | {"process": Identity.of(content["process"])})

    def processes(self) -> dict[int, Identity]:
        return {NODE: self.process} if self.process else {}

    def with_process(self, _number: int, process: Identity | None) -> CassandraNode:
        """The same with another process: there is one."""
        return replace(self, process=process)

    @classmethod
    def planned(cls, before: CassandraNode | None, port: int | None, secure: bool | None) -> CassandraNode:
        """The one to start with: as it was, on ports that are free now."""
        if port:
            require_free(port)
        if before and secure is not None and secure != before.secure:
            raise CassandraMismatch(
                f"the data is that of a Cassandra that is {'secure' if before.secure else 'plain'}",
                hint="leave --secure and --plain out, or choose another --data folder",
            )
        taken = {port} if port else set()
        chosen = port or preferred_or_free_port(before.port if before else None, taken)
        storage = preferred_or_free_port(before.storage_port if before else None, taken)
        if before:
            return replace(before, port=chosen, storage_port=storage, process=None)
        return cls(chosen, storage, password=secrets.token_urlsafe(18), secure=bool(secure))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def write(self, folder: Path, certificates: Certificates | None) -> None:
        conf = folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        log = escape(str(folder / "cassandra.log"))
        (conf / "logback.xml").write_text(_LOGBACK.format(log=log), "utf-8")
        path = conf / "cassandra.yaml"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(self._configuration(folder, certificates)), "utf-8")

    def command(self, folder: Path, java: Java, classpath: str, heap: str) -> list[str | Path]:
        """Return the command of the node; the folder as its last argument identifies the process."""
        conf = folder / "conf"
        return [
            java.path, f"-Xmx{heap}", "-Xms128m", "-Xss256k", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true", "-Djdk.attach.allowAttachSelf=true",
            *(["-Djava.security.manager=allow"] if java.major > 17 else []),
            *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS),
            "-Dio.netty.tryReflectionSetAccessible=true", "-Dio.netty.allocator.maxOrder=11",
            f"-Dlogback.configurationFile={(conf / 'logback.xml').as_uri()}",
            f"-Dcassandra.config={(conf / 'cassandra.yaml').as_uri()}",
            f"-Dcassandra.storagedir={folder / 'data'}", "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=1",
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-cp", f"{conf}:{classpath}", "org.apache.cassandra.service.CassandraDaemon", folder,
        ]  # fmt: skip

    def _configuration(self, folder: Path, certificates: Certificates | None) -> dict[str, Any]:
        data = folder / "data"
        seeds = [{"seeds": f"127.0.0.1:{self.storage_port}"}]
        return {
            "cluster_name": "millrace",
            "num_tokens": 1,
            "auto_bootstrap": False,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [{"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": seeds}],
            "listen_address": "127.0.0.1",
            "storage_port": self.storage_port,
            "rpc_address": "127.0.0.1",
            "native_transport_port": self.port,
            "data_file_directories": [str(data / "data")],
            "commitlog_directory": str(data / "commitlog"),
            "saved_caches_directory": str(data / "saved_caches"),
            "hints_directory": str(data / "hints"),
            "cdc_raw_directory": str(data / "cdc_raw"),
            # What was acknowledged is there after a kill: there is no other node that would have it.
            "commitlog_sync": "batch",
            # One machine that is shared with Kafka and Spark: little memory.
            "commitlog_segment_size": "16MiB",
            "commitlog_total_space": "128MiB",
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "memtable_allocation_type": "heap_buffers",
            "key_cache_size": "4MiB",
            "file_cache_size": "32MiB",
            "networking_cache_size": "16MiB",
            "concurrent_reads": 8,
            "concurrent_writes": 64,  # most of them wait for the disk, together
            "native_transport_max_threads": 64,
            # A machine that is busy answers late, and late is better than not.
            "read_request_timeout": "20s",
            "range_request_timeout": "20s",
            "write_request_timeout": "20s",
            "request_timeout": "20s",
            # There is one node, so batches of several partitions cost nothing more.
            "batch_size_warn_threshold": "64KiB",
            "batch_size_fail_threshold": "1024KiB",
            "unlogged_batch_across_partitions_warn_threshold": 1000,
            # A node that cannot continue ends, and that is noticed.
            "disk_failure_policy": "die",
            "commit_failure_policy": "die",
            **(self._security(certificates) if certificates else {}),
        }

    @staticmethod
    def _security(certificates: Certificates) -> dict[str, Any]:
        return {
            "authenticator": "PasswordAuthenticator",
            "authorizer": "CassandraAuthorizer",
            "role_manager": "CassandraRoleManager",
            "credentials_validity": "0ms",  # a user that is gone is gone at once
            "client_encryption_options": {
                "enabled": True,
                "optional": False,
                "keystore": str(certificates.store),
                "keystore_password": certificates.password,
                "store_type": "PKCS12",
            },
        }


_POLL_INTERVAL_S = 0.1
_FIRST_USER = {"user": "cassandra", "password": "cassandra"}
"""Who a new Cassandra lets in."""


@dataclass(frozen=True)
class CassandraOptions:
    """How it shall be; None leaves it as it was, or to the default for a new one."""

    port: int | None = None
    secure: bool | None = None
    heap: str = CASSANDRA_HEAP.default
    detach: bool = False


class CassandraService(Embedded[CassandraNode, Cassandra]):
    """A Cassandra in a folder."""

    name = "Cassandra"
    start_timeout_s = 120.0
    lock_timeout_s = 5.0
    taken_port_texts = ("Address already in use", "is in use by another process", "Failed to bind port")
    in_use = CassandraInUse
    none = NoCassandra

    def __init__(self, folder: Path, options: CassandraOptions | None = None) -> None:
        self.options = options or CassandraOptions()
        super().__init__(folder, CassandraNode, port=self.options.port, detach=self.options.detach)

    def stop(self) -> None:
        if self.layout:
            Cassandra(self.layout.address).close()
        super().stop()

    def kill(self) -> None:
        """End it at once, as a crash would; `start` brings it back with its data and its address."""
        self.kill_all()
        self._let_go()

    @property
    def pid(self) -> int | None:
        return self._children[NODE].pid if NODE in self._children else None

    def client(self) -> Cassandra:
        return client_of(self.folder, self.require_layout())

    def _start(self, java: Java, classpath: str, before: CassandraNode | None, notify: Notify) -> None:
        node = self.layout = CassandraNode.planned(before, self.options.port, self.options.secure)
        certificates = self._certificates(java, notify, partial(_properties, node)) if node.secure else None
        node.save(self.folder)  # first, so that a start that fails can be tried again
        node.write(self.folder, certificates)
        notify("starting Cassandra")
        command = node.command(self.folder, java, classpath, self.options.heap)
        self._launch(NODE, "Cassandra", command, self.folder / "console.log")
        self._wait_until(self._answers)

    def _answers(self) -> bool:
        node = self.require_layout()
        try:
            if _listens(node.port):
                if node.secure and not node.settled:
                    self._settle(node)
                self.client().execute("SELECT release_version FROM system.local")
                return True
        except (CassandraUnreachable, CassandraFailed, CassandraDenied):
            pass  # it listens, and is not ready yet
        time.sleep(_POLL_INTERVAL_S)
        return False

    def _settle(self, node: CassandraNode) -> None:
        """The user that every new Cassandra has, whose password everybody knows, gives way to ours."""
        ours = self.client()
        first = replace(ours, options={**ours.options, **_FIRST_USER})
        login = f"WITH PASSWORD = '{node.password}' AND LOGIN = true AND SUPERUSER = true"
        first.execute(f"CREATE ROLE IF NOT EXISTS {CASSANDRA_USER} {login}", doing="add a user")
        first.close()
        ours.execute("DROP ROLE IF EXISTS cassandra", doing="remove the first user")
        self.layout = replace(node, settled=True)
        self.layout.save(self.folder)

    def _start_failure(self, child: Child) -> ServiceFailed:
        return child.failure("Cassandra did not start", hint=f"the whole log is in {self.folder / 'cassandra.log'}")


def client_of(folder: Path, node: CassandraNode) -> Cassandra:
    """How clients reach the Cassandra of a folder."""
    return Cassandra.at(node.address, client_properties(folder) if node.secure else None)


running = CassandraNode.running
stop = partial(stop_service, CassandraService, CassandraNode)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _properties(node: CassandraNode, certificates: Certificates) -> dict[str, str]:
    return {"user": CASSANDRA_USER, "password": node.password, "tls.ca": str(certificates.authority)}
