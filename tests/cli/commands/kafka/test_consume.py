"""`millrace kafka consume` as a user meets it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from millrace.clients.kafka import consumer_groups
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]
MOMENT = 1_700_000_000_000


@pytest.fixture
def put(cluster: Cluster) -> Callable[..., None]:
    def put(topic: str, *records: Record) -> None:
        producer = Producer(cluster, topic, Delivery(idempotence=False))
        producer.send(records)
        producer.close()
        assert not producer.failed

    return put


@pytest.fixture
def filled(lane: str, put: Callable[..., None]) -> str:
    """Records `0` to `4`, with keys `k0` to `k4`, a second apart."""
    put(lane, *(Record(b"%d" % number, b"k%d" % number, MOMENT + number * 1000) for number in range(5)))
    return lane


def wait_for_member(cluster: Cluster, group: str) -> None:
    while not any(
        one.name == group and one.members and one.members[0].partitions for one in consumer_groups.list_groups(cluster)
    ):
        pass


def test_records_as_json(run: Run, lane: str, put: Callable[..., None]) -> None:
    put(lane, Record(b"v", b"k", MOMENT, (("h", b"1"),)), Record(None, b"\xff"))
    first, second = (
        json.loads(line)
        for line in run("kafka", "consume", lane, "--from-beginning", "--max", "2", "--json").out.splitlines()
    )
    assert first == {
        "topic": lane,
        "partition": 0,
        "offset": 0,
        "timestamp": MOMENT,
        "key": "k",
        "value": "v",
        "headers": {"h": "1"},
    }
    assert (second["offset"], second["key"], second["key_base64"], second["value"]) == (1, None, "/w==", None)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--from-beginning", "--max", "2"], "0\n1\n"),
        (["--partition", "0", "--offset", "3", "--max", "2"], "3\n4\n"),
        (["--from-time", str(MOMENT + 4000), "--max", "1"], "4\n"),
        (["--from-beginning", "--keys", "--max", "1"], "k0\t0\n"),
        (["--from-beginning", "--format", "json", "--max", "1"], "0\n"),
    ],
)
def test_what_is_printed(run: Run, filled: str, arguments: list[str], shown: str) -> None:
    assert run("kafka", "consume", filled, *arguments).out == shown


def test_silence_ends_it(run: Run, filled: str) -> None:
    ran = run("kafka", "consume", filled, "--timeout", "100ms")
    assert (ran.out, ran.err) == ("", "0 records\n")


def test_a_group_goes_on_where_it_was(run: Run, cluster: Cluster, filled: str) -> None:
    consume = ("kafka", "consume", filled, "--group", f"g-{filled}", "--from-beginning")
    assert run(*consume, "--max", "3").out == "0\n1\n2\n"
    assert consumer_groups.describe(cluster, f"g-{filled}").lag == 2
    assert run(*consume, "--max", "2").out == "3\n4\n"


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (["NEW"], "kafka.topic-unknown"),
        (["OLD", "--partition", "1"], "kafka.topic-unknown"),
        (["OLD", "--partition", "0", "--offset", "9"], "option.invalid"),
    ],
)
def test_what_is_wrong_exits_2(run: Run, filled: str, arguments: list[str], condition: str) -> None:
    words = [{"OLD": filled, "NEW": f"{filled}x"}.get(word, word) for word in arguments]
    assert run("kafka", "consume", *words, code=2).err.startswith(f"error[{condition}]")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_waits_ends_it_well(
    start: Start, cluster: Cluster, lane: str, number: signal.Signals
) -> None:
    process = start("kafka", "consume", lane, "--group", f"g-{lane}")
    wait_for_member(cluster, f"g-{lane}")
    process.send_signal(number)
    assert process.communicate(timeout=60) == (b"", b"0 records\n")
    assert process.returncode == 0
    assert not any(one.members for one in consumer_groups.list_groups(cluster) if one.name == f"g-{lane}")


def test_a_reader_that_has_had_enough_is_no_error(start: Start, lane: str, put: Callable[..., None]) -> None:
    put(lane, *(Record(b"%0100d" % number) for number in range(20_000)))
    process = start("kafka", "consume", lane, "--from-beginning")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"%0100d\n" % 0
    process.stdout.close()
    assert process.wait(60) == 0
    assert [line.split()[1:] for line in process.stderr.read().splitlines()] == [[b"records"]]
