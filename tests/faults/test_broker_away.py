"""The only broker stops answering: everything says so, ends when asked to, and says what was not delivered."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator

import pytest

from conftest import CommandLine
from millrace.clients.kafka import topics
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker of these tests' own, which may be frozen; and then does not shut itself out for having been away."""
    patient = {"broker.session.timeout.ms": "600000"}
    service = KafkaCluster(tmp_path_factory.mktemp("kafka"), KafkaClusterOptions(heap="320m", properties=patient))
    service.start()
    yield service
    service.stop()


@pytest.fixture
def topic(broker: KafkaCluster) -> Iterator[str]:
    """A new topic; the broker goes on when the test is over."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    topics.create(broker.cluster(), name)
    yield name
    thaw(broker)


@pytest.fixture
def line(broker: KafkaCluster, offline_millrace: CommandLine) -> CommandLine:
    """The command line for that broker, with little patience."""
    address = {"MILLRACE_KAFKA": broker.cluster().bootstrap, "MILLRACE_KAFKA_TIMEOUT": "2s"}
    return CommandLine(offline_millrace.folder, offline_millrace.environment | address)


def freeze(service: KafkaCluster) -> None:
    """Stop the broker as a machine that hangs would."""
    os.kill(service._children[1].pid, signal.SIGSTOP)


def thaw(service: KafkaCluster) -> None:
    """Let it go on."""
    os.kill(service._children[1].pid, signal.SIGCONT)


def read_until(process: subprocess.Popen[bytes], words: bytes) -> None:
    """Read what a process tells until these words."""
    assert process.stderr is not None
    while words not in (told := process.stderr.readline()):
        assert told, f"it ended without {words!r}"


@pytest.mark.long
def test_consume_does_not_take_silence_for_the_end(broker: KafkaCluster, line: CommandLine, topic: str) -> None:
    line("kafka", "produce", topic, stdin="a\n")
    with line.start("kafka", "consume", topic, "--from-beginning", "--timeout", "3s") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        freeze(broker)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"kafka.unreachable" in told


@pytest.mark.long
def test_consume_without_end_says_what_it_waits_for(broker: KafkaCluster, line: CommandLine, topic: str) -> None:
    line("kafka", "produce", topic, stdin="a\n")
    with line.start("kafka", "consume", topic, "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        freeze(broker)
        read_until(process, b"no broker answers")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.long
def test_a_feed_ends_on_the_second_ctrl_c_and_says_what_was_lost(
    broker: KafkaCluster, line: CommandLine, topic: str
) -> None:
    with line.start("feed", "ads", "--topic", topic, "--rate", "20000/s") as process:
        line("kafka", "consume", topic, "--from-beginning", "--max", "1")
        freeze(broker)
        time.sleep(0.5)  # so that there is something on its way, which nobody else can see
        process.send_signal(signal.SIGINT)
        read_until(process, b"waiting for")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"delivered" in told
    assert b"kafka.not-delivered" in told


@pytest.mark.long
def test_produce_ends_on_ctrl_c_though_its_queue_is_full(broker: KafkaCluster, line: CommandLine, topic: str) -> None:
    (line.folder / "small.properties").write_text("queue.buffering.max.messages=1000\n")
    arguments = ("kafka", "produce", topic, "--kafka-config", "small.properties")
    with line.start(*arguments) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        line("kafka", "consume", topic, "--from-beginning", "--max", "1")
        freeze(broker)
        process.stdin.write(b"line\n" * 5_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        read_until(process, b"waiting for")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"kafka.not-delivered" in told


@pytest.mark.long
def test_a_pause_is_survived(broker: KafkaCluster, line: CommandLine, topic: str) -> None:
    with line.start("kafka", "produce", topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        line("kafka", "consume", topic, "--from-beginning", "--max", "1")
        freeze(broker)
        process.stdin.write(b"line\n" * 1_000)
        process.stdin.close()
        process.stdin = None
        read_until(process, b"waiting for")
        thaw(broker)
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert topics.describe(broker.cluster(), [topic])[0].offsets == 1_001
