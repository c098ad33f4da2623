"""Our own Kafka: it keeps its data, guards its folder, and leaves nothing running."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.errors import (
    AccessDenied,
    DataDirInUse,
    DataDirMismatch,
    FileUnusable,
    JavaUnusable,
    NoCluster,
    PortInUse,
    ServiceFailed,
)
from millrace.services import kafka
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions
from millrace.services.process import free_port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the clusters of this file, one after the other; formatting it once is enough."""
    return tmp_path_factory.mktemp("cluster")


def pids(folder: Path) -> list[int]:
    """The processes of the cluster in a folder."""
    layout = kafka.running(folder)
    return [one.pid for one in layout.alive().values()] if layout else []


def assert_ended(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        return


def test_data_and_address_survive_a_restart(folder: Path) -> None:
    with KafkaCluster(folder) as cluster:
        topics.create(cluster, "kept", 2)
        producer = Producer(cluster, "kept")
        producer.send([Record(b"still here")])
        producer.close()
        address = cluster.bootstrap
    assert kafka.running(folder) is None
    with KafkaCluster(folder) as cluster:
        assert cluster.bootstrap == address
        assert topics.describe(cluster, ["kept"])[0].offsets == 1


@pytest.mark.long
def test_a_second_one_is_refused(folder: Path) -> None:
    with KafkaCluster(folder):
        with pytest.raises(DataDirInUse) as caught:
            KafkaCluster(folder).start()
        assert str(pids(folder)[0]) in str(caught.value.why)
        assert pids(folder)


def test_a_chosen_port_is_used_and_a_taken_one_refused(folder: Path) -> None:
    port = free_port()
    with KafkaCluster(folder, KafkaClusterOptions(port=port)) as cluster:
        assert cluster.bootstrap == f"127.0.0.1:{port}"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortInUse):
            KafkaCluster(folder, KafkaClusterOptions(port=taken.getsockname()[1])).start()
    assert pids(folder) == []


def test_another_number_of_brokers_is_refused(folder: Path) -> None:
    with pytest.raises(DataDirMismatch):
        KafkaCluster(folder, KafkaClusterOptions(brokers=3)).start()


@pytest.mark.long
def test_a_killed_parent_takes_the_broker_along(folder: Path) -> None:
    program = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from millrace.services.kafka import KafkaCluster
        KafkaCluster(Path({str(folder)!r})).start()
        print("up", flush=True)
        time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        (pid,) = pids(folder)
        parent.send_signal(signal.SIGKILL)
    assert_ended(pid)
    with KafkaCluster(folder):  # the lock went with the broker
        assert pids(folder) != [pid]


@pytest.mark.long
def test_a_broken_property_is_quoted_and_the_next_start_is_not_harmed(tmp_path: Path) -> None:
    with pytest.raises(ServiceFailed) as caught:
        KafkaCluster(tmp_path, KafkaClusterOptions(properties={"num.io.threads": "many"})).start()
    assert "num.io.threads" in str(caught.value.why)
    with KafkaCluster(tmp_path):
        assert pids(tmp_path)


@pytest.mark.long
def test_a_property_that_stops_the_broker_is_quoted_from_its_log(folder: Path) -> None:
    with pytest.raises(ServiceFailed) as caught:
        KafkaCluster(folder, KafkaClusterOptions(properties={"num.io.threads": "many"})).start()
    assert "num.io.threads" in str(caught.value.why)
    assert pids(folder) == []


@pytest.mark.long
def test_a_broker_that_dies_is_noticed(folder: Path) -> None:
    service = KafkaCluster(folder)
    service.start()
    try:
        assert service.died() is None
        process = psutil.Process(pids(folder)[0])
        process.kill()
        process.wait(20)
        service._children[1].wait(20)
        gone = service.died()
        assert gone is not None
        assert isinstance(gone.failure("it died"), ServiceFailed)
    finally:
        service.stop()


@pytest.mark.long
def test_detached_and_stopped_by_its_folder(folder: Path) -> None:
    service = KafkaCluster(folder, KafkaClusterOptions(detach=True))
    service.start()
    (pid,) = pids(folder)
    assert len(kafka.stop(folder)) == 1
    assert_ended(pid)
    service.stop()
    with pytest.raises(NoCluster):
        kafka.stop(folder)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("cluster.id=other")
    with pytest.raises(DataDirMismatch):
        KafkaCluster(tmp_path).start()


def test_a_damaged_description(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"nodes": 7}')
    with pytest.raises(DataDirMismatch):
        KafkaCluster(tmp_path).start()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileUnusable):
        KafkaCluster(tmp_path / "file" / "data").start()


def test_no_java(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_JAVA="/nonexistent/java")
    with pytest.raises(JavaUnusable):
        KafkaCluster(tmp_path).start()


@pytest.mark.long
def test_a_folder_with_letters_of_every_kind(tmp_path: Path) -> None:
    folder = tmp_path / 'josé & "söhne" <ключ>'
    with KafkaCluster(folder) as cluster:
        topics.create(cluster, "kept")
    assert (folder / "node-1" / "data" / "kept-0").is_dir()
    assert (folder / "node-1" / "broker.log").stat().st_size
    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name]


@pytest.mark.long
def test_a_chosen_port_is_not_used_twice(folder: Path) -> None:
    layout = kafka.ClusterLayout.load(folder)
    assert layout is not None
    port = layout.nodes[0].controller_port
    with KafkaCluster(folder, KafkaClusterOptions(port=port)) as cluster:
        assert cluster.bootstrap == f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[Cluster]:
    """The same folder's cluster with TLS and passwords."""
    with KafkaCluster(folder, KafkaClusterOptions(secure=True)) as cluster:
        yield cluster
    with KafkaCluster(folder, KafkaClusterOptions(secure=False)) as cluster:
        assert not cluster.options


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_password_opens_a_secure_cluster(secured: Cluster, mechanism: str) -> None:
    access = replace(secured, options={**secured.options, "sasl.mechanism": mechanism})
    assert len(access.connect().brokers) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused(secured: Cluster, mechanism: str) -> None:
    options = {**secured.options, "sasl.mechanism": mechanism, "sasl.password": "guess"}
    with pytest.raises(AccessDenied):
        replace(secured, options=options).connect()


@pytest.mark.long
def test_an_unknown_authority_is_refused(secured: Cluster) -> None:
    options = {key: value for key, value in secured.options.items() if key != "ssl.ca.location"}
    with pytest.raises(AccessDenied):
        replace(secured, options=options).connect()
