"""A real Kafka of our own: one or more KRaft nodes as child processes, bound to 127.0.0.1."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from millrace.clients.cluster import Cluster
from millrace.errors import DataDirInUse, KafkaUnreachable, NoCluster, ServiceFailed
from millrace.services import embedded, jars
from millrace.services.certificates import Certificates
from millrace.services.embedded import (
    Embedded,
    PortTakenError,
    Tell,
    client_properties,
    write_client_properties,
)
from millrace.services.java import Java, find_java
from millrace.services.kraft import USER, Door, Layout, Node, node_folder, plan_layout, write_node
from millrace.services.process import Child, quoted
from millrace.settings import KAFKA_HEAP
from millrace.units import so_many


@dataclass(frozen=True)
class Options:
    """How the cluster shall be; None leaves it as it was, or to the default for a new one."""

    brokers: int | None = None
    port: int | None = None
    secure: bool | None = None
    heap: str = KAFKA_HEAP.default
    detach: bool = False
    properties: Mapping[str, str] | None = None
    java: tuple[str, ...] = ()
    """More options of the brokers' Java."""
    doors: Mapping[str, Door] = field(default_factory=dict)
    """More listeners, by their names."""


class Kafka(Embedded[Layout, Cluster]):
    """A cluster in a folder."""

    name = "Kafka"
    patience = 90.0
    ending = 2.0
    in_use = DataDirInUse
    none = NoCluster

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.options = options or Options()
        super().__init__(folder, Layout, port=self.options.port, detach=self.options.detach)
        self._certificates: Certificates | None = None

    def kill(self, node_id: int) -> None:
        """End a node at once, as a crash would."""
        self._kill(node_id)

    def restart(self, node_id: int) -> None:
        """Bring a node back with its data; does not wait until it has joined."""
        node = next(node for node in self.known().nodes if node.id == node_id)
        self._launch_node(node, find_java(), jars.ensure("kafka").classpath())

    def client(self) -> Cluster:
        """How clients reach it."""
        return cluster_of(self.folder, self.known())

    cluster = client

    def _start(self, java: Java, classpath: str, before: Layout | None, tell: Tell) -> None:
        options = self.options
        layout = self.layout = plan_layout(before, options.brokers, options.port, options.secure)
        if layout.secure:
            tell("making certificates")
            self._certificates = Certificates.ensure(self.folder / "tls", java)
            write_client_properties(self.folder, _properties(layout, self._certificates))
        layout.save(self.folder)  # first, so that a start that fails can be tried again
        for node in layout.nodes:
            write_node(self.folder, layout, node, self._certificates, options.properties or {}, options.doors)
        self._format(java, classpath, tell)
        tell(f"starting {so_many(len(layout.nodes), 'broker')}")
        for node in layout.nodes:
            self._launch_node(node, java, classpath)
        inside = Cluster(layout.internal, timeout=1.0)
        self._wait_until(lambda: _answer(inside, len(layout.nodes)))
        if layout.secure:
            self._add_scram_user()

    def _format(self, java: Java, classpath: str, tell: Tell) -> None:
        layout = self.known()
        fresh = [node for node in layout.nodes if not (self._home(node) / "data" / "meta.properties").exists()]
        if not fresh:
            return
        tell("formatting storage")
        with ThreadPoolExecutor(len(fresh)) as pool:
            list(pool.map(lambda node: self._format_node(node, java, classpath), fresh))

    def _format_node(self, node: Node, java: Java, classpath: str) -> None:
        home = self._home(node)
        command: list[str | Path] = [
            java.path, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={home / 'log4j2.xml'}", "-cp", classpath,
            "kafka.tools.StorageTool", "format", "--ignore-formatted",
            "-t", self.known().cluster_id, "-c", home / "server.properties",
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise ServiceFailed(
                f"Kafka could not format {home / 'data'}",
                why=f"its StorageTool says{quoted(ran.stderr or ran.stdout)}",
                hint="is the disk full or the folder not writable? millrace doctor tells",
            )

    def _launch_node(self, node: Node, java: Java, classpath: str) -> None:
        home = self._home(node)
        command: list[str | Path] = [
            java.path, f"-Xmx{self.options.heap}", "-Xms64m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
            *self.options.java,
            "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={home / 'log4j2.xml'}", "-cp", classpath,
            "kafka.Kafka", home / "server.properties",
        ]  # fmt: skip
        self._launch(node.id, f"broker {node.id}", command, home / "console.log")

    def _start_failure(self, child: Child) -> Exception:
        failure = child.failure(f"{child.name} did not start")
        return PortTakenError(failure) if "Address already in use" in child.output() else failure

    def _add_scram_user(self) -> None:
        """SCRAM's passwords live in the cluster itself; PLAIN's in each broker's properties."""
        layout = self.known()
        inside = Cluster(layout.internal)
        admin = inside.admin()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            how = ScramCredentialInfo(mechanism, 4096)
            wanted = UserScramCredentialUpsertion(USER, how, layout.password.encode())
            with inside.speaking("add a user"):
                admin.alter_user_scram_credentials([wanted])[USER].result()

    def _home(self, node: Node) -> Path:
        return node_folder(self.folder, node)


def _answer(cluster: Cluster, brokers: int) -> bool:
    try:
        return len(cluster.connect().brokers) == brokers
    except KafkaUnreachable:
        return False


def cluster_of(folder: Path, layout: Layout) -> Cluster:
    """How clients reach the cluster that lies in a folder."""
    properties = client_properties(folder)
    return Cluster.at(layout.address, properties if layout.secure else None)


def running(folder: Path) -> Layout | None:
    """The layout of the cluster that runs in a folder, or None when none does."""
    return Layout.running(folder)


def stop(folder: Path) -> list[int]:
    """Stop the cluster of a folder, whoever started it; gives the nodes that ran."""
    return embedded.stop(Kafka, Layout, folder)


def _properties(layout: Layout, certificates: Certificates) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": layout.password,
        "ssl.ca.location": str(certificates.authority),
    }
