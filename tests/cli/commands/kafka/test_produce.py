"""`millrace kafka produce` as a user meets it."""

from __future__ import annotations

import random
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from conftest import CommandLine
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def lane(cluster: Cluster) -> str:
    """A new topic with one partition."""
    name = f"lane-{uuid.uuid4().hex[:12]}"
    topics.create(cluster, name, 1)
    return name


def taken(cluster: Cluster, topic: str, most: int, *, committed: bool = True) -> list[Message]:
    wanted = ReadRequest(topic, "earliest", most=most, committed=committed)
    return [message for batch in read_records(cluster, wanted) for message in batch]


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def records(cluster: Cluster, topic: str) -> int:
    return topics.describe(cluster, [topic])[0].offsets


def type_in(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Give it lines and leave its standard input open."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def interrupted(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    """The exit code and what was said, after a signal while standard input is still open."""
    process.send_signal(number)
    code = process.wait(60)
    assert process.stderr is not None
    return code, process.stderr.read().decode()


@pytest.fixture
def produce(run: Run, tmp_path: Path) -> Callable[..., str]:
    """Lines of a file into a topic; what was said."""

    def produce(text: bytes, topic: str, *arguments: str, code: int = 0) -> str:
        (tmp_path / "lines").write_bytes(text)
        said: str = run("kafka", "produce", topic, "--file", "lines", *arguments, code=code).err
        return said

    return produce


def test_lines_become_records(millrace: CommandLine, cluster: Cluster, lane: str) -> None:
    said = millrace("kafka", "produce", lane, "--acks", "all", stdin="a\n\nzoë ☕")
    assert said.stdout == ""
    assert "3 delivered, 0 failed" in said.stderr
    assert values(taken(cluster, lane, 3)) == [b"a", b"", "zoë ☕".encode()]


def test_a_file_becomes_records(produce: Callable[..., str], cluster: Cluster, lane: str) -> None:
    lines = [b"%d" % number for number in range(10_000)]
    assert "10,000 delivered" in produce(b"\n".join(lines), lane)
    assert values(taken(cluster, lane, 10_000)) == lines


def test_what_a_line_means(produce: Callable[..., str], cluster: Cluster, topic: str) -> None:
    options = ["--key-separator", ":", "--header", "from=test", "--header", "n=", "--null", "NULL", "--partition", "2"]
    produce(b"k:v\ngone:NULL\n", topic, *options)
    found = taken(cluster, topic, 2)
    assert [(one.key(), one.value()) for one in found] == [(b"k", b"v"), (b"gone", None)]
    assert {one.partition() for one in found} == {2}
    assert found[0].headers() == [("from", b"test"), ("n", b"")]


def test_bytes_are_sent_as_they_are_when_raw(produce: Callable[..., str], cluster: Cluster, lane: str) -> None:
    produce(b"\xff\n\xfe\x00\n", lane, "--raw")
    assert values(taken(cluster, lane, 2)) == [b"\xff", b"\xfe\x00"]


def test_the_lines_before_one_that_is_not_utf8_are_there(millrace: CommandLine, cluster: Cluster, lane: str) -> None:
    said = millrace("kafka", "produce", lane, stdin=b"a\nb\ncaf\xe9\nd\n", code=2).stderr
    assert "error[input.not-utf8]: line 3" in said
    assert "2 delivered, 0 failed" in said
    assert records(cluster, lane) == 2
    assert values(taken(cluster, lane, 2)) == [b"a", b"b"]


def test_a_committed_transaction_is_there(produce: Callable[..., str], cluster: Cluster, lane: str) -> None:
    produce(b"a\nb\n", lane, "--transaction")
    assert values(taken(cluster, lane, 2)) == [b"a", b"b"]


def test_an_aborted_transaction_leaves_nothing_for_readers_of_committed_records(
    millrace: CommandLine, lane: str
) -> None:
    millrace("kafka", "produce", lane, "--abort", stdin="a\nb\n")
    millrace("kafka", "produce", lane, stdin="end\n")
    consume = ("kafka", "consume", lane, "--from-beginning")
    assert millrace(*consume, "--max", "1").stdout == "end\n"
    assert millrace(*consume, "--read-uncommitted", "--max", "3").stdout == "a\nb\nend\n"


def test_a_transaction_with_a_bad_line_leaves_nothing(produce: Callable[..., str], cluster: Cluster, lane: str) -> None:
    assert "error[input.not-utf8]" in produce(b"a\n\xff\n", lane, "--transaction", code=2)
    produce(b"end\n", lane)
    assert values(taken(cluster, lane, 1)) == [b"end"]


def test_a_record_that_is_too_large_exits_1(produce: Callable[..., str], cluster: Cluster, lane: str) -> None:
    too_long = random.Random(1).randbytes(1_000_000).hex().encode()  # it compresses to half of that
    said = produce(b"a\n" + too_long * 3 + b"\nb\n", lane, "--compression", "none", code=1)
    assert "error[kafka.not-delivered]" in said
    assert "2 delivered, 1 failed" in said
    assert values(taken(cluster, lane, 2)) == [b"a", b"b"]


def test_a_line_without_the_separator_exits_2(produce: Callable[..., str], cluster: Cluster, lane: str) -> None:
    assert "error[option.invalid]: line 2" in produce(b"k:v\nnone\n", lane, "--key-separator", ":", code=2)
    assert records(cluster, lane) == 1


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (["NEW"], "kafka.topic-unknown"),
        (["OLD", "--partition", "1"], "kafka.topic-unknown"),
        (["OLD", "--file", "none.txt"], "file.unusable"),
        (["OLD", "--file", "."], "file.unusable"),
    ],
)
def test_what_is_wrong_exits_2_and_sends_nothing(
    run: Run, cluster: Cluster, lane: str, arguments: list[str], condition: str
) -> None:
    words = [{"OLD": lane, "NEW": f"{lane}x"}.get(word, word) for word in arguments]
    assert f"error[{condition}]" in run("kafka", "produce", *words, code=2).err
    assert records(cluster, lane) == 0
    assert f"{lane}x" not in cluster.connect().topics


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_waits_for_lines_ends_it_well(
    start: Start, cluster: Cluster, lane: str, number: signal.Signals
) -> None:
    process = start("kafka", "produce", lane)
    type_in(process, b"a\nb\nhalf")
    assert values(taken(cluster, lane, 2)) == [b"a", b"b"]
    code, said = interrupted(process, number)
    assert code == 0
    assert "2 delivered, 0 failed" in said
    assert records(cluster, lane) == 2


def test_a_signal_in_a_transaction_aborts_it(start: Start, millrace: CommandLine, cluster: Cluster, lane: str) -> None:
    process = start("kafka", "produce", lane, "--transaction")
    type_in(process, b"a\n")
    assert values(taken(cluster, lane, 1, committed=False)) == [b"a"]
    code, said = interrupted(process)
    assert code == 1
    assert "error[kafka.not-delivered]" in said
    millrace("kafka", "produce", lane, stdin="end\n")
    assert values(taken(cluster, lane, 1)) == [b"end"]
