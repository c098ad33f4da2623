"""`millrace kafka up`, `down` and `status` as a user meets them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess

import psutil
import pytest

from conftest import CommandLine
from millrace.services import kafka


def broker_pid(line: CommandLine) -> int:
    """The pid of the only broker in the folder."""
    layout = kafka.running(line.folder / ".millrace" / "kafka")
    assert layout is not None
    process = layout.nodes[0].process
    assert process is not None
    return process.pid


def wait_gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        return


def started(line: CommandLine, *arguments: str) -> subprocess.Popen[bytes]:
    """`kafka up` in the foreground, once it has told its address."""
    process = line.start("kafka", "up", *arguments)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"Kafka is up at 127.0.0.1:")
    return process


def test_detached_used_and_stopped(offline_millrace: CommandLine) -> None:
    offline_millrace("kafka", "up", "--detach")
    pid = broker_pid(offline_millrace)
    try:
        offline_millrace("kafka", "topics", "create", "t")
        offline_millrace("kafka", "produce", "t", stdin="hello\n")
        read = offline_millrace("kafka", "consume", "t", "--from-beginning", "--max", "1")
        assert read.stdout == "hello\n"
        status = json.loads(offline_millrace("kafka", "status", "--json").stdout)
        assert [broker["id"] for broker in status["brokers"]] == [1]
        again = offline_millrace("kafka", "up", "--detach", code=2)
        assert "kafka.data-in-use" in again.stderr
    finally:
        offline_millrace("kafka", "down")
    wait_gone(pid)
    assert "kafka.none" in offline_millrace("kafka", "down", code=2).stderr
    assert "kafka.none" in offline_millrace("kafka", "topics", "list", code=2).stderr


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stops_cleanly_on_a_signal(offline_millrace: CommandLine, number: signal.Signals) -> None:
    with started(offline_millrace) as process:
        pid = broker_pid(offline_millrace)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"stopped" in said
    assert not psutil.pid_exists(pid)


@pytest.mark.long
def test_a_broker_that_dies_ends_it_with_its_log(offline_millrace: CommandLine) -> None:
    with started(offline_millrace) as process:
        psutil.Process(broker_pid(offline_millrace)).kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"service.failed" in said


def test_a_port_in_use(offline_millrace: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = offline_millrace("kafka", "up", "--port", str(taken.getsockname()[1]), code=2)
    assert "port.in-use" in said.stderr


def test_no_java(offline_millrace: CommandLine) -> None:
    said = offline_millrace("kafka", "up", code=1, MILLRACE_JAVA="/nonexistent/java")
    assert "java.unusable" in said.stderr


@pytest.mark.long
def test_a_secure_cluster_from_the_command_line(offline_millrace: CommandLine) -> None:
    said = offline_millrace("kafka", "up", "--detach", "--secure")
    try:
        address = said.stdout.split()[-1]
        config = offline_millrace.folder / ".millrace" / "kafka" / "client.properties"
        offline_millrace("kafka", "topics", "create", "t", "--kafka", address, "--kafka-config", str(config))
        described = offline_millrace(
            "kafka", "topics", "describe", "t", "--json", "--kafka", address, "--kafka-config", str(config)
        )
        # The size comes from Kafka's own tool here, with the properties in Java's words.
        assert json.loads(described.stdout)[0]["partitions"][0]["bytes"] == 0
        wrong = offline_millrace.folder / "wrong.properties"
        lines = config.read_text().splitlines()
        wrong.write_text("\n".join("sasl.password=x" if "password" in line else line for line in lines))
        refused = offline_millrace("kafka", "status", "--kafka", address, "--kafka-config", str(wrong), code=2)
        assert "kafka.access-denied" in refused.stderr
        password = next(line.partition("=")[2] for line in lines if "password" in line)
        assert password not in refused.stderr
    finally:
        offline_millrace("kafka", "down")


@pytest.mark.long
def test_stopped_by_another_command(offline_millrace: CommandLine) -> None:
    with started(offline_millrace) as process:
        offline_millrace("kafka", "down")
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"stopped" in said


@pytest.mark.long
def test_interrupted_while_it_starts_leaves_nothing_running(offline_millrace: CommandLine) -> None:
    with offline_millrace.start("kafka", "up", "--detach") as process:
        assert process.stderr is not None
        assert any(b"starting" in line for line in iter(process.stderr.readline, b""))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert kafka.running(offline_millrace.folder / ".millrace" / "kafka") is None
