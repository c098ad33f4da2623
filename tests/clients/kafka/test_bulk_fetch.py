"""Ranges of partitions in bulk, from a real broker, against what confluent-kafka reads of the same topics."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer as Raw
from confluent_kafka import TopicPartition

from conftest import committed
from millrace.clients.kafka import bulk_fetch, protocol, record_batch, topics
from millrace.clients.kafka.bulk_fetch import FetchRange, fetch_records, partition_ends, partition_leaders
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.protocol import BrokerConnection, ConnectionLost
from millrace.clients.kafka.record import Record
from millrace.errors import AccessDenied, KafkaUnreachable, OffsetsGone

if TYPE_CHECKING:
    from millrace.clients.kafka.producer import Producer

Put = Callable[..., "Producer"]
ODD: tuple[Record, ...] = (
    Record(b""),
    Record(None, b"a tombstone"),
    Record(b"x" * 70_000, b"", headers=(("h", b"1"), ("h", None), ("\u00fc", b""))),
    Record(b"\0" * 200, b"k" * 200),
    *(Record(b"%d" % number * (number % 90), b"%d" % number) for number in range(1500)),
)


def range_of(cluster: Cluster, topic: str, start: int = 0, stop: int | None = None, number: int = 0) -> FetchRange:
    led = partition_leaders(cluster, [topic])
    end = partition_ends(cluster, led, committed=True)[topic, number] if stop is None else stop
    return FetchRange(topic, number, start, end, led[topic, number])


def rows(found: Iterator[record_batch.RecordColumns]) -> list[tuple[Any, ...]]:
    """Offset, time, key, value and headers of each record."""
    told: list[tuple[Any, ...]] = []
    for one in found:
        keys, values = one.bytes_of(one.keys).to_pylist(), one.bytes_of(one.values).to_pylist()
        headers = [
            None if some is None else [(each["key"], each["value"]) for each in some] for some in one.headers_of()
        ]
        told += zip(one.offsets.tolist(), one.times.tolist(), keys, values, headers, strict=True)
    return told


def as_a_client_reads(cluster: Cluster, topic: str) -> list[tuple[Any, ...]]:
    found = [
        (one.offset(), one.timestamp()[1], one.key(), one.value(), one.headers() or None)
        for one in committed(cluster, topic)
    ]
    return sorted(found, key=lambda one: one[0])


def produce(cluster: Cluster, topic: str, records: Sequence[Record], **config: Any) -> None:
    producer = Raw(cluster.config(linger_ms=20, **config))
    for one in records:
        producer.produce(topic, one.value, one.key, headers=list(one.headers))
    assert producer.flush(30) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_as_a_client_reads_it(cluster: Cluster, lane: str, codec: str) -> None:
    produce(cluster, lane, ODD, compression_type=codec, batch_num_messages=400)
    produce(cluster, lane, ODD[:10])
    found = rows(fetch_records(cluster, range_of(cluster, lane)))
    assert found == as_a_client_reads(cluster, lane)
    assert len(found) == len(ODD) + 10


def test_a_range_begins_and_ends_within_batches(cluster: Cluster, lane: str) -> None:
    produce(cluster, lane, [Record(b"%d" % number) for number in range(1000)])
    found = rows(fetch_records(cluster, range_of(cluster, lane, 123, 877)))
    assert [one[3] for one in found] == [b"%d" % number for number in range(123, 877)]


def test_times_are_the_brokers_where_the_topic_says_so(cluster: Cluster, lane: str) -> None:
    topics.alter(cluster, lane, configs={"message.timestamp.type": "LogAppendTime"})
    produce(cluster, lane, ODD[:10])
    assert rows(fetch_records(cluster, range_of(cluster, lane))) == as_a_client_reads(cluster, lane)


def transact(cluster: Cluster, topic: str, name: str, values: Sequence[bytes], *, end: str) -> Raw:
    producer = Raw(cluster.config(transactional_id=f"{name}-{topic}"))
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    if end == "commit":
        producer.commit_transaction(30)
    elif end == "abort":
        producer.abort_transaction(30)
    return producer


def test_of_transactions_only_what_was_committed_is_read(cluster: Cluster, lane: str) -> None:
    first = transact(cluster, lane, "a", [b"aborted"] * 3, end="")
    transact(cluster, lane, "b", [b"kept"] * 3, end="commit")
    first.abort_transaction(30)
    first.begin_transaction()  # the same producer, and this time it counts
    first.produce(lane, b"kept after all")
    first.commit_transaction(30)
    transact(cluster, lane, "c", [b"aborted"], end="abort")
    found = rows(fetch_records(cluster, range_of(cluster, lane)))
    assert [one[3] for one in found] == [b"kept"] * 3 + [b"kept after all"]
    assert found == as_a_client_reads(cluster, lane)
    everything = rows(fetch_records(cluster, range_of(cluster, lane), committed=False))
    assert [one[3] for one in everything].count(b"aborted") == 4


def test_the_end_is_before_an_open_transaction(cluster: Cluster, lane: str, put: Put) -> None:
    put(lane, b"1", b"2")
    transact(cluster, lane, "open", [b"3"], end="")
    led = partition_leaders(cluster, [lane])
    assert partition_ends(cluster, led, committed=True) == {(lane, 0): 2}
    assert partition_ends(cluster, led, committed=False) == {(lane, 0): 3}


def test_what_is_gone_is_told_or_passed_over(cluster: Cluster, lane: str, put: Put) -> None:
    put(lane, *(b"%d" % number for number in range(10)))
    span = range_of(cluster, lane)
    next(iter(cluster.admin().delete_records([TopicPartition(lane, 0, 4)]).values())).result(30)
    with pytest.raises(OffsetsGone, match="offsets 0 to 3 are gone, the first that exists is 4"):
        rows(fetch_records(cluster, span))
    assert [one[0] for one in rows(fetch_records(cluster, span, skip_lost=True))] == list(range(4, 10))
    assert rows(fetch_records(cluster, FetchRange(lane, 0, 0, 4, span.leader), skip_lost=True)) == []
    with pytest.raises(OffsetsGone, match="after the end of the topic"):
        rows(fetch_records(cluster, FetchRange(lane, 0, 50, 60, span.leader)))


def test_a_leader_that_is_not_known_or_not_there_is_looked_for(cluster: Cluster, lane: str, put: Put) -> None:
    put(lane, b"1")
    for leader in (None, ("127.0.0.1", 9)):
        assert len(rows(fetch_records(cluster, FetchRange(lane, 0, 0, 1, leader)))) == 1


def test_a_partition_that_stays_away_is_an_error(cluster: Cluster, lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_fetch, "FETCH_TIMEOUT_S", 0.5)
    with pytest.raises(KafkaUnreachable, match="partition 7 cannot be read"):
        rows(fetch_records(cluster, FetchRange(lane, 7, 0, 1)))
    with pytest.raises(KafkaUnreachable, match="no record at offset 0"):
        rows(fetch_records(cluster, range_of(cluster, lane, 0, 5)))


def test_a_connection_that_was_cut_is_made_anew(cluster: Cluster, lane: str, put: Put) -> None:
    put(lane, b"1", b"2")
    span = range_of(cluster, lane)
    assert span.leader
    rows(fetch_records(cluster, span))
    with bulk_fetch._borrow_connection(cluster, span.leader) as wire:
        wire.close()
    assert len(rows(fetch_records(cluster, span))) == 2


def test_nobody_at_an_address() -> None:
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:9"):
        BrokerConnection("127.0.0.1", 9, 5)


def batch_of(cluster: Cluster, lane: str, put: Put) -> bytearray:
    put(lane, b"one", b"two")
    span = range_of(cluster, lane)
    found: list[memoryview] = []
    assert span.leader
    with bulk_fetch._borrow_connection(cluster, span.leader) as wire:
        wire.ask_records(bulk_fetch.FetchRequest(lane, 0, 0, committed=True, most=1000))
        found.append(wire.records().records)
    return bytearray(found[0])


def test_bytes_that_are_not_as_they_were_written_are_refused(cluster: Cluster, lane: str, put: Put) -> None:
    batch = batch_of(cluster, lane, put)
    batch[-1] ^= 1
    with pytest.raises(record_batch.DamagedBatch, match="checksum"):
        list(record_batch.batches(memoryview(batch), []))
    batch[16] = 1
    with pytest.raises(record_batch.DamagedBatch, match="format 1"):
        list(record_batch.batches(memoryview(batch), []))


def test_a_batch_that_is_cut_off_comes_again(cluster: Cluster, lane: str, put: Put) -> None:
    batch = batch_of(cluster, lane, put)
    twice = memoryview(bytes(batch) * 2)
    assert [
        len(list(record_batch.batches(twice[:size], []))) for size in (len(batch) - 1, len(batch), len(twice) - 1)
    ] == [
        0,
        1,
        1,
    ]


@pytest.mark.parametrize("number", [0, 1, -1, 63, -64, 64, 8191, -8192, 2**31, -(2**40), 2**61])
def test_numbers_of_any_length(number: int) -> None:
    zigzag, told = (number << 1) ^ (number >> 63), bytearray()
    while True:
        zigzag, low = zigzag >> 7, zigzag & 127
        told.append(low | (128 if zigzag else 0))
        if not zigzag:
            break
    assert record_batch._varint(memoryview(told), 0) == (number, len(told))
    data = record_batch.np.frombuffer(bytes(told) + b"\0\2", record_batch.np.uint8)
    values, after = record_batch._varints(data, record_batch.np.array([0, len(told)]))
    assert (values.tolist(), after.tolist()) == ([number, 0], [len(told), len(told) + 1])


def test_lengths_of_records_of_any_size() -> None:
    sizes = [0, 1, 63, 64, 5_000, 8_191, 8_192, 300_000, 2_000_000]
    data, expected = bytearray(), []
    for size in sizes:
        zigzag = size << 1
        while zigzag > 127:
            data.append(zigzag & 127 | 128)
            zigzag >>= 7
        data.append(zigzag)
        expected.append(len(data))
        data += bytes(size)
    starts: list[int] = []
    record_batch._note_starts(memoryview(data), 0, len(sizes), starts)
    assert starts == expected
    assert struct.calcsize(record_batch._HEADER.format) == 61


def test_records_that_are_here_are_handed_on_when_the_next_cannot_be_asked_for(
    cluster: Cluster, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(cluster, lane, [Record(b"%d" % number * 200) for number in range(2000)], batch_num_messages=100)
    ask, asked = BrokerConnection.ask_records, []

    def fails_now_and_then(wire: BrokerConnection, what: bulk_fetch.FetchRequest) -> None:
        asked.append(what.offset)
        if len(asked) % 2 == 0:
            raise ConnectionLost("cut off")
        ask(wire, what)

    monkeypatch.setattr(BrokerConnection, "ask_records", fails_now_and_then)
    monkeypatch.setattr(bulk_fetch, "_MAX_RESPONSE_BYTES", 65_536)
    found = rows(fetch_records(cluster, range_of(cluster, lane)))
    assert [one[0] for one in found] == list(range(2000))
    assert len(asked) >= 3


def test_a_reader_over_its_quota_waits(cluster: Cluster, lane: str, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker says for how long, and nothing else."""
    told = protocol._read_response(memoryview(struct.pack(">iii", 1, 250, 0)))
    assert (told.throttled, told.error, len(told.records)) == (0.25, 0, 0)
    put(lane, b"1")
    answers, real = [told._replace(throttled=0.001)], BrokerConnection.records

    def throttled_first(one: BrokerConnection) -> protocol.FetchResponse:
        if not answers:
            return real(one)
        real(one)
        return answers.pop()

    monkeypatch.setattr(BrokerConnection, "records", throttled_first)
    assert len(rows(fetch_records(cluster, range_of(cluster, lane)))) == 1


def test_an_answer_that_cannot_be_read_is_asked_for_again(
    cluster: Cluster, lane: str, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lane, b"1")
    span, cut, real = range_of(cluster, lane), [True], BrokerConnection._receive

    def receive(connection: BrokerConnection, read: Callable[[memoryview], Any]) -> Any:
        return real(connection, lambda body: read(body[: 20 if cut and cut.pop() else None]))

    monkeypatch.setattr(BrokerConnection, "_receive", receive)
    assert len(rows(fetch_records(cluster, span))) == 1


def test_a_mark_that_compaction_has_emptied_says_nothing(cluster: Cluster, lane: str) -> None:
    transact(cluster, lane, "a", [b"kept"], end="commit")
    span = range_of(cluster, lane)
    assert span.leader
    with bulk_fetch._borrow_connection(cluster, span.leader) as line:
        line.ask_records(bulk_fetch.FetchRequest(lane, 0, 0, committed=True, most=10_000))
        data, mark = record_batch._all(line.records().records)
    assert mark.attributes & record_batch._CONTROL
    emptied = mark._replace(size=0, records=mark.records[:0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batch, "_all", lambda _: iter([data, emptied]))
        assert [one.size for one in record_batch.batches(memoryview(b""), [])] == [1, 0]


def test_many_bytes_that_were_few_come_in_parts(cluster: Cluster, lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(cluster, lane, [Record(b"x" * 10_000)] * 500, compression_type="zstd", batch_num_messages=50)
    monkeypatch.setattr(record_batch, "_TARGET_ARRAY_BYTES", 600_000)
    parts = [len(one.offsets) for one in fetch_records(cluster, range_of(cluster, lane))]
    assert (sum(parts), max(parts) <= 150) == (500, True)


def test_what_comes_after_a_range_is_not_looked_at(
    cluster: Cluster, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(cluster, lane, [Record(b"%d" % number) for number in range(1000)], batch_num_messages=10)
    seen, plain = [], record_batch.google_crc32c.value
    monkeypatch.setattr(record_batch.google_crc32c, "value", lambda data: seen.append(1) or plain(data))
    assert len(rows(fetch_records(cluster, range_of(cluster, lane, 0, 15)))) == 15
    assert len(seen) <= 20


@pytest.mark.parametrize(
    "names", [("ssl.certificate.location", "ssl.key.location"), ("ssl.ca.location",), ("ssl.cipher.suites",)]
)
def test_settings_for_tls_that_cannot_be_used_are_named(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("-----BEGIN CERTIFICATE-----\nnone\n")
    cluster = Cluster("127.0.0.1:1", {"security.protocol": "SSL", **dict.fromkeys(names, str(tmp_path / "file"))})
    with pytest.raises(AccessDenied) as caught:
        bulk_fetch._connect(cluster, ("127.0.0.1", 1))
    assert all(name in str(caught.value.hint) for name in names)
