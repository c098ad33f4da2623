"""A real Kafka of our own: one or more KRaft nodes as child processes, bound to 127.0.0.1.

- `ClusterLayout` and `write_node`: the cluster on disk, with its shape and the properties of each node.
- `KafkaCluster` formats the storage, and starts, kills and stops the nodes.
- `running`, `stop` and `cluster_of` find the cluster of a folder from another program.
"""

from __future__ import annotations

import secrets
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.properties import java_file
from millrace.errors import DataDirInUse, DataDirMismatch, KafkaUnreachable, NoCluster, ServiceFailed
from millrace.services import jars
from millrace.services.certificates import Certificates
from millrace.services.java import Java, find_java
from millrace.services.lifecycle import Description, Embedded, Notify, client_properties, stop_service
from millrace.services.process import Identity, preferred_or_free_port, quote_output, require_free
from millrace.settings import KAFKA_HEAP
from millrace.units import format_count

KAFKA_USER = "millrace"
_LOG4J = """<Configuration status="ERROR">
  <Appenders>
    <RollingFile name="file" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1}} %m%n"/>
      <SizeBasedTriggeringPolicy size="10MB"/>
      <DefaultRolloverStrategy max="3"/>
    </RollingFile>
    <Console name="console" target="SYSTEM_ERR"><PatternLayout pattern="%-5p %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="INFO">
      <AppenderRef ref="file"/>
      <AppenderRef ref="console" level="ERROR"/>
    </Root>
    <Logger name="org.apache.kafka.common.config.AbstractConfig" level="WARN"/>
    <Logger name="kafka.server.KafkaConfig" level="WARN"/>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True)
class Listener:
    """One more port that clients may use, with rules of its own: its properties are `listener.name.NAME.…`."""

    port: int
    """The first broker's; the others have the next ones."""
    protocol: str


@dataclass(frozen=True)
class Node:
    """One process that is both broker and controller."""

    id: int
    port: int
    controller_port: int
    internal_port: int
    process: Identity | None = None


@dataclass(frozen=True)
class ClusterLayout(Description):
    """What `cluster.json` holds; each node is a process."""

    file = "cluster.json"
    what = "cluster"
    mismatch = DataDirMismatch

    cluster_id: str
    nodes: tuple[Node, ...]

    @classmethod
    def parsed(cls, content: dict[str, Any]) -> ClusterLayout:
        nodes = tuple(Node(**node | {"process": Identity.of(node["process"])}) for node in content["nodes"])
        return cls(content["cluster_id"], nodes, password=content["password"], secure=content["secure"])

    def processes(self) -> dict[int, Identity]:
        return {node.id: node.process for node in self.nodes if node.process}

    def with_process(self, number: int, process: Identity | None) -> ClusterLayout:
        nodes = (replace(node, process=process) if node.id == number else node for node in self.nodes)
        return replace(self, nodes=tuple(nodes))

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def internal(self) -> str:
        """The address that needs no password: the brokers' own."""
        return ",".join(f"127.0.0.1:{node.internal_port if self.secure else node.port}" for node in self.nodes)


def plan_layout(
    before: ClusterLayout | None, brokers: int | None, port: int | None, secure: bool | None
) -> ClusterLayout:
    """The layout to start with: the old one where there is one, with ports that are free now."""
    if before and brokers not in (None, len(before.nodes)):
        raise DataDirMismatch(
            f"the data is that of a cluster with {len(before.nodes)} brokers, not {brokers}",
            hint=f"use --brokers {len(before.nodes)}, or another --data folder for the new cluster",
        )
    count = len(before.nodes) if before else brokers or 1
    if port:
        for number in range(count):
            require_free(port + number)
    old = before.nodes if before else (None,) * count
    taken = set(range(port, port + count)) if port else set()
    nodes = tuple(
        Node(
            id=number,
            port=port + number - 1 if port else preferred_or_free_port(node.port if node else None, taken),
            controller_port=preferred_or_free_port(node.controller_port if node else None, taken),
            internal_port=preferred_or_free_port(node.internal_port if node else None, taken),
        )
        for number, node in enumerate(old, 1)
    )
    return ClusterLayout(
        cluster_id=before.cluster_id if before else new_id(),
        password=before.password if before else secrets.token_urlsafe(18),
        secure=secure if secure is not None else bool(before and before.secure),
        nodes=nodes,
    )


def new_id() -> str:
    """An id for a cluster, as Kafka makes them: none begins with a dash, which its tools would take for an option."""
    while (cluster_id := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return cluster_id


def write_node(
    folder: Path,
    layout: ClusterLayout,
    node: Node,
    certificates: Certificates | None,
    options: KafkaClusterOptions,
) -> None:
    """Write a node's properties and log configuration."""
    home = node_folder(folder, node)
    home.mkdir(parents=True, exist_ok=True)
    (home / "log4j2.xml").write_text(_LOG4J.format(log=escape(str(home / "broker.log"), {'"': "&quot;"})), "utf-8")
    properties = {
        **_roles(layout, node, home, options.listeners),
        **_replication(len(layout.nodes)),
        **(_security(layout, certificates) if certificates else {}),
        **(options.properties or {}),
    }
    path = home / "server.properties"
    path.touch(mode=0o600)
    path.write_text(java_file(properties), "ascii")


def node_folder(folder: Path, node: Node) -> Path:
    """Where a node keeps its files."""
    return folder / f"node-{node.id}"


def _roles(layout: ClusterLayout, node: Node, home: Path, listeners: Mapping[str, Listener]) -> dict[str, str]:
    voters = ",".join(f"{peer.id}@127.0.0.1:{peer.controller_port}" for peer in layout.nodes)
    ports = {"CLIENT": node.port} | ({"INTERNAL": node.internal_port} if layout.secure else {})
    ports |= {name: listener.port + node.id - 1 for name, listener in listeners.items()}
    advertised = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    more = "".join(f",{name}:{listener.protocol}" for name, listener in listeners.items())
    client = "SASL_SSL" if layout.secure else "PLAINTEXT"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": f"CLIENT:{client},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT{more}",
        "inter.broker.listener.name": "INTERNAL" if layout.secure else "CLIENT",
        "log.dirs": str(home / "data"),
        # A name that is mistyped must be an error, not a new topic.
        "auto.create.topics.enable": "false",
        # Nothing is deleted by time unless a topic is set so: old timestamps are usual, as in a file that is
        # replayed, and Kafka would remove them within minutes.
        "log.retention.ms": "-1",
        # One machine, few groups: little to load at start and little memory.
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.num.partitions": "4",
        "log.cleaner.dedupe.buffer.size": "16777216",
        # A broker that was killed is noticed in seconds.
        "broker.heartbeat.interval.ms": "1000",
        "broker.session.timeout.ms": "6000",
    }


def _replication(brokers: int) -> dict[str, str]:
    """Copies on three brokers where there are three, and a write is safe on two before it is acknowledged."""
    copies, in_sync = str(min(3, brokers)), str(2 if brokers >= 3 else 1)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _security(layout: ClusterLayout, certificates: Certificates) -> dict[str, str]:
    login = "org.apache.kafka.common.security"
    plain_login = f'{login}.plain.PlainLoginModule required user_{KAFKA_USER}="{layout.password}";'
    scram = f"{login}.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.client.plain.sasl.jaas.config": plain_login,
        "listener.name.client.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.client.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.client.ssl.keystore.type": "PKCS12",
        "listener.name.client.ssl.keystore.location": str(certificates.store),
        "listener.name.client.ssl.keystore.password": certificates.password,
        "listener.name.client.ssl.key.password": certificates.password,
    }


@dataclass(frozen=True)
class KafkaClusterOptions:
    """How the cluster shall be; None leaves it as it was, or to the default for a new one."""

    brokers: int | None = None
    port: int | None = None
    secure: bool | None = None
    heap: str = KAFKA_HEAP.default
    detach: bool = False
    properties: Mapping[str, str] | None = None
    java: tuple[str, ...] = ()
    """More options of the brokers' Java."""
    listeners: Mapping[str, Listener] = field(default_factory=dict)
    """More listeners, by their names."""


class KafkaCluster(Embedded[ClusterLayout, Cluster]):
    """A cluster in a folder."""

    name = "Kafka"
    start_timeout_s = 90.0
    lock_timeout_s = 2.0
    taken_port_texts = ("Address already in use",)
    in_use = DataDirInUse
    none = NoCluster

    def __init__(self, folder: Path, options: KafkaClusterOptions | None = None) -> None:
        self.options = options or KafkaClusterOptions()
        super().__init__(folder, ClusterLayout, port=self.options.port, detach=self.options.detach)

    def kill(self, node_id: int) -> None:
        """End a node at once, as a crash would."""
        self._kill(node_id)

    def restart(self, node_id: int) -> None:
        """Bring a node back with its data; does not wait until it has joined."""
        node = next(node for node in self.require_layout().nodes if node.id == node_id)
        self._launch_node(node, find_java(), jars.ensure("kafka").classpath())

    def client(self) -> Cluster:
        return cluster_of(self.folder, self.require_layout())

    cluster = client

    def _start(self, java: Java, classpath: str, before: ClusterLayout | None, notify: Notify) -> None:
        options = self.options
        layout = self.layout = plan_layout(before, options.brokers, options.port, options.secure)
        certificates = self._certificates(java, notify, partial(_properties, layout)) if layout.secure else None
        layout.save(self.folder)  # first, so that a start that fails can be tried again
        for node in layout.nodes:
            write_node(self.folder, layout, node, certificates, options)
        self._format(java, classpath, notify)
        notify(f"starting {format_count(len(layout.nodes), 'broker')}")
        for node in layout.nodes:
            self._launch_node(node, java, classpath)
        inside = Cluster(layout.internal, timeout=1.0)
        self._wait_until(lambda: _answer(inside, len(layout.nodes)))
        if layout.secure:
            self._add_scram_user()

    def _format(self, java: Java, classpath: str, notify: Notify) -> None:
        homes = [node_folder(self.folder, node) for node in self.require_layout().nodes]
        fresh = [home for home in homes if not (home / "data" / "meta.properties").exists()]
        if fresh:
            notify("formatting storage")
            with ThreadPoolExecutor(len(fresh)) as pool:
                list(pool.map(lambda home: self._format_node(home, java, classpath), fresh))

    def _format_node(self, home: Path, java: Java, classpath: str) -> None:
        command: list[str | Path] = [
            java.path, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={home / 'log4j2.xml'}", "-cp", classpath,
            "kafka.tools.StorageTool", "format", "--ignore-formatted",
            "-t", self.require_layout().cluster_id, "-c", home / "server.properties",
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise ServiceFailed(
                f"Kafka could not format {home / 'data'}",
                why=f"its StorageTool says{quote_output(ran.stderr or ran.stdout)}",
                hint="is the disk full or the folder not writable? see millrace doctor",
            )

    def _launch_node(self, node: Node, java: Java, classpath: str) -> None:
        home = node_folder(self.folder, node)
        command: list[str | Path] = [
            java.path, f"-Xmx{self.options.heap}", "-Xms64m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
            *self.options.java,
            "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={home / 'log4j2.xml'}", "-cp", classpath,
            "kafka.Kafka", home / "server.properties",
        ]  # fmt: skip
        self._launch(node.id, f"broker {node.id}", command, home / "console.log")

    def _add_scram_user(self) -> None:
        """SCRAM's passwords live in the cluster itself; PLAIN's in each broker's properties."""
        layout = self.require_layout()
        inside = Cluster(layout.internal)
        admin = inside.admin()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            user = UserScramCredentialUpsertion(KAFKA_USER, info, layout.password.encode())
            with inside.translated_errors("add a user"):
                admin.alter_user_scram_credentials([user])[KAFKA_USER].result()


def _answer(cluster: Cluster, brokers: int) -> bool:
    try:
        return len(cluster.connect().brokers) == brokers
    except KafkaUnreachable:
        return False


def cluster_of(folder: Path, layout: ClusterLayout) -> Cluster:
    """Return the address and properties of the cluster of a folder."""
    return Cluster.at(layout.address, client_properties(folder) if layout.secure else None)


running = ClusterLayout.running
stop = partial(stop_service, KafkaCluster, ClusterLayout)


def _properties(layout: ClusterLayout, certificates: Certificates) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": KAFKA_USER,
        "sasl.password": layout.password,
        "ssl.ca.location": str(certificates.authority),
    }
