"""A real Kafka of our own: one or more KRaft nodes as child processes, bound to 127.0.0.1."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from millrace.clients.cluster import Cluster
from millrace.errors import DataDirInUse, FileUnusable, KafkaUnreachable, NoCluster, ServiceFailed
from millrace.services import jars
from millrace.services.certificates import Certificates
from millrace.services.java import Java, find_java
from millrace.services.kraft import USER, Door, Layout, Node, node_folder, plan_layout, write_node
from millrace.services.locks import FolderLock
from millrace.services.process import Child, quoted
from millrace.settings import KAFKA_HEAP

START_TIMEOUT = 90.0
_TRIES = 3
_ENDING = 2.0
"""Seconds in which what guarded a broker that was killed lets go of its folder."""
"""How often a start is tried when somebody takes a free port between its choice and its use."""


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


class Kafka:
    """A cluster in a folder. Use it as a context, or call `start` and `stop`.

    Unless detached its processes end with this one, however this one ends. The folder is locked while any
    process of the cluster lives.
    """

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder = folder.absolute()
        self.options = options or Options()
        self._children: dict[int, Child] = {}
        self._lock: FolderLock | None = None
        self._certificates: Certificates | None = None
        self.layout: Layout | None = None

    def start(self, say: Callable[[str], None] | None = None, progress: jars.Progress | None = None) -> Cluster:
        """Start every node and wait until the cluster answers; leaves nothing behind when that fails."""
        tell = say or (lambda _: None)
        java = find_java()
        self._take_folder()
        try:
            before = Layout.load(self.folder)
            classpath = jars.ensure("kafka", progress).classpath()
            for attempt in range(1, _TRIES + 1):
                try:
                    return self._start(java, classpath, self.layout or before, tell)
                except _PortTakenError as taken:
                    self._stop_children()
                    if self.options.port or attempt == _TRIES:
                        raise taken.failure from None
            raise AssertionError("unreachable")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every node in order, and wait for each."""
        self._stop_children()
        if self._lock:
            self._lock.release()
            self._lock = None

    def kill(self, node_id: int) -> None:
        """End a node at once, as a crash would."""
        self._children.pop(node_id).kill()
        self._note(node_id)

    def restart(self, node_id: int) -> None:
        """Bring a node back with its data; does not wait until it has joined."""
        node = next(node for node in self._known().nodes if node.id == node_id)
        self._launch(node, find_java(), jars.ensure("kafka").classpath())

    def died(self) -> Child | None:
        """A node that has ended by itself, if one has."""
        return next((child for child in self._children.values() if not child.running()), None)

    def cluster(self) -> Cluster:
        """How clients reach it."""
        return cluster_of(self.folder, self._known())

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _known(self) -> Layout:
        if self.layout is None:
            raise NoCluster("this Kafka has not been started")
        return self.layout

    def _take_folder(self) -> None:
        Layout.load(self.folder)  # a folder that is not ours is left as it is
        try:
            lock = FolderLock(self.folder)
        except OSError as error:
            raise FileUnusable(f"cannot use the data folder {self.folder}", why=str(error)) from None
        if not lock.try_acquire(_ENDING):
            lock.release()
            raise _in_use(self.folder)
        self._lock = lock

    def _start(self, java: Java, classpath: str, before: Layout | None, tell: Callable[[str], None]) -> Cluster:
        options = self.options
        layout = self.layout = plan_layout(before, options.brokers, options.port, options.secure)
        if layout.secure:
            tell("making certificates")
            self._certificates = Certificates.ensure(self.folder / "tls", java)
            _write_client_properties(self.folder, layout, self._certificates)
        layout.save(self.folder)  # first, so that a start that fails can be tried again
        for node in layout.nodes:
            write_node(self.folder, layout, node, self._certificates, options.properties or {}, options.doors)
        self._format(java, classpath, tell)
        tell(f"starting {len(layout.nodes)} broker{'s' if len(layout.nodes) > 1 else ''}")
        for node in layout.nodes:
            self._launch(node, java, classpath)
        self._wait_until_ready()
        if layout.secure:
            self._add_scram_user()
        return self.cluster()

    def _format(self, java: Java, classpath: str, tell: Callable[[str], None]) -> None:
        layout = self._known()
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
            "-t", self._known().cluster_id, "-c", home / "server.properties",
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise ServiceFailed(
                f"Kafka could not format {home / 'data'}",
                why=f"its StorageTool says{quoted(ran.stderr or ran.stdout)}",
                hint="is the disk full or the folder not writable? millrace doctor tells",
            )

    def _launch(self, node: Node, java: Java, classpath: str) -> None:
        home = self._home(node)
        command: list[str | Path] = [
            java.path, f"-Xmx{self.options.heap}", "-Xms64m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
            *self.options.java,
            "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={home / 'log4j2.xml'}", "-cp", classpath,
            "kafka.Kafka", home / "server.properties",
        ]  # fmt: skip
        # In a thread, where no Ctrl-C can come between its start and our knowing of it; this one waits for both.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._spawn, node.id, command, home / "console.log").result()

    def _spawn(self, node_id: int, command: list[str | Path], log: Path) -> None:
        held = [self._lock.fd] if self._lock else []
        name = f"broker {node_id}"
        self._children[node_id] = Child(name, command, log, detach=self.options.detach, keep_fds=held)
        self._note(node_id)

    def _note(self, node_id: int) -> None:
        """Keep in cluster.json which process a node is, so that others can find and stop it."""
        child = self._children.get(node_id)
        self.layout = self._known().with_process(node_id, child.identity if child else None)
        self.layout.save(self.folder)

    def _wait_until_ready(self) -> None:
        layout = self._known()
        address = Cluster(layout.internal, timeout=1.0)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            child = self.died()
            if child:
                raise self._start_failure(child)
            with contextlib.suppress(KafkaUnreachable):
                if len(address.connect().brokers) == len(layout.nodes):
                    return
        raise next(iter(self._children.values())).failure(f"Kafka did not answer within {START_TIMEOUT:.0f} s")

    def _start_failure(self, child: Child) -> Exception:
        failure = child.failure(f"{child.name} did not start")
        return _PortTakenError(failure) if "Address already in use" in child.output() else failure

    def _add_scram_user(self) -> None:
        """SCRAM's passwords live in the cluster itself; PLAIN's in each broker's properties."""
        layout = self._known()
        inside = Cluster(layout.internal)
        admin = inside.admin()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            how = ScramCredentialInfo(mechanism, 4096)
            wanted = UserScramCredentialUpsertion(USER, how, layout.password.encode())
            with inside.speaking("add a user"):
                admin.alter_user_scram_credentials([wanted])[USER].result()

    def _stop_children(self) -> None:
        with ThreadPoolExecutor(max(1, len(self._children))) as pool:
            list(pool.map(Child.stop, self._children.values()))
        for node_id in list(self._children):
            del self._children[node_id]
            self._note(node_id)

    def _home(self, node: Node) -> Path:
        return node_folder(self.folder, node)


class _PortTakenError(Exception):
    def __init__(self, failure: ServiceFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


def cluster_of(folder: Path, layout: Layout) -> Cluster:
    """How clients reach the cluster that lies in a folder."""
    properties = client_properties(folder)
    return Cluster.at(layout.bootstrap, properties if layout.secure else None)


def client_properties(folder: Path) -> Path:
    """The file of client properties of a secure cluster."""
    return folder.absolute() / "client.properties"


def running(folder: Path) -> Layout | None:
    """The layout of the cluster that runs in a folder, or None when none does."""
    layout = Layout.load(folder) if (folder / "cluster.json").exists() else None
    return layout if layout and layout.running() else None


def stop(folder: Path) -> list[Node]:
    """Stop the cluster of a folder, whoever started it; gives the nodes that ran."""
    layout = running(folder)
    if layout is None:
        raise NoCluster(f"no Kafka of ours runs in {folder}", hint="give its folder with --data")
    nodes = layout.running()
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: node.process and node.process.stop(), nodes))
    for node in nodes:
        layout = layout.with_process(node.id, None)
    layout.save(folder)
    return nodes


def _in_use(folder: Path) -> DataDirInUse:
    layout = running(folder)
    pids = ", ".join(str(node.process.pid) for node in layout.running() if node.process) if layout else ""
    return DataDirInUse(
        f"the data folder {folder} is in use",
        why=f"a Kafka runs on it at {layout.bootstrap} (pid {pids})" if layout else "another process is starting on it",
        hint=f"use that one, stop it with millrace kafka down --data {folder}, or choose another --data folder",
    )


def _write_client_properties(folder: Path, layout: Layout, certificates: Certificates) -> None:
    path = client_properties(folder)
    path.touch(mode=0o600)
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": layout.password,
        "ssl.ca.location": str(certificates.authority),
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), "utf-8")
