"""Rows into a real Kafka in transactions: each batch once, however often and by whomever it is tried."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from conftest import committed
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.batch_tasks import task_numbers
from millrace.connectors.kafka.commit_ledger import LEDGER, BatchCommit, CommitLedger
from millrace.connectors.kafka.exactly_once import (
    BatchLog,
    StartedBatch,
    TransactionalWriter,
    _plan_digest,
    _require_same_tasks,
    require_newest,
)
from millrace.errors import StateMismatch, TakenOver
from millrace.errors.transport import TransportedError, from_transport

QUERY = "a-query"


@pytest.fixture
def ledger(cluster: Cluster, topic: str) -> CommitLedger:
    made = CommitLedger(cluster, f"test.{uuid.uuid4().hex[:8]}.{topic}", topic, create=True)
    made.prepare()
    return made


def rows(*values: str, **columns: list[Any]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"value": list(values), **columns})])


def write(
    ledger: CommitLedger, batch: int, *values: str, task: int = 0, repeated: bool = False, query: str = QUERY
) -> int:
    return TransactionalWriter(ledger, query, batch, repeated).write(task, rows(*values), repeated=repeated)


def written(ledger: CommitLedger, topic: str | None = None) -> list[str]:
    """The values that a reader of committed records sees, up to the end of the topic."""
    return [(one.value() or b"").decode() for one in committed(ledger.cluster, topic or ledger.topic or "")]


def test_a_batch_that_comes_again_is_written_once(ledger: CommitLedger) -> None:
    assert write(ledger, 0, "a", "b") == 2
    assert write(ledger, 0, "a", "b", repeated=True) == 0
    assert write(ledger, 1, "c") == 1
    assert write(ledger, 1, "c", repeated=True) == 0
    assert Counter(written(ledger)) == Counter("abc")


def test_tasks_do_not_know_each_other(ledger: CommitLedger) -> None:
    for task in (0, 1, 49, 50, 120):
        assert write(ledger, 0, f"task {task}", task=task) == 1
        assert write(ledger, 0, f"task {task}", task=task, repeated=True) == 0
    assert len(written(ledger)) == 5


def test_another_checkpoint_starts_from_scratch(ledger: CommitLedger) -> None:
    write(ledger, 7, "a")
    assert write(ledger, 0, "a", query="another") == 1


def test_a_task_without_rows_writes_nothing(ledger: CommitLedger) -> None:
    assert TransactionalWriter(ledger, QUERY, 0, False).write(0, rows(), repeated=False) == 0
    assert ledger.committed_batch(0) == BatchCommit()


def test_rows_are_read_to_the_end_even_when_they_are_written_already(ledger: CommitLedger) -> None:
    write(ledger, 0, "a")
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for value in "ab":
            taken.append(value)
            yield from rows(value)

    assert TransactionalWriter(ledger, QUERY, 0, True).write(0, batches(), repeated=True) == 0
    assert taken == ["a", "b"]


def test_what_fails_on_the_way_leaves_nothing(ledger: CommitLedger) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        TransactionalWriter(ledger, QUERY, 0, False).write(0, batches(), repeated=False)
    assert ledger.committed_batch(0) == BatchCommit()
    assert write(ledger, 0, "a", repeated=True) == 1
    assert written(ledger) == ["a"]


def test_who_was_overtaken_writes_nothing(ledger: CommitLedger) -> None:
    overtaken, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        overtaken.set()
        go_on.wait(60)
        yield from rows("b")

    def zombie() -> None:
        try:
            TransactionalWriter(ledger, QUERY, 0, False).write(0, slow(), repeated=False)
        except TransportedError as error:
            raised.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    assert overtaken.wait(60)
    assert write(ledger, 0, "a", "b", repeated=True) == 2
    go_on.set()
    thread.join(60)
    assert isinstance(from_transport(str(raised[0])), TakenOver)
    assert sorted(written(ledger)) == ["a", "b"]
    assert write(ledger, 0, "a", "b", repeated=True) == 0


@pytest.mark.parametrize("repeated", [True, False], ids=["the batch comes again", "another folder"])
def test_who_was_killed_between_its_note_and_its_commit_keeps_nobody_waiting(
    ledger: CommitLedger, *, repeated: bool
) -> None:
    """Kafka tells nobody what is noted while that transaction is open, which may be for ten minutes."""
    killed = ledger.open_producer(0)
    killed._client.begin_transaction()
    killed.send(ledger.topic or "", Record(b"a"))
    killed.settle()
    with ledger._committed_offsets(0) as progress:
        note = TopicPartition(LEDGER, 0, 1, f"{QUERY}/{killed.instance}/")
        killed._client.send_offsets_to_transaction([note], progress.group)
    assert set(ledger.all_committed_batches(1)) == {BatchCommit()}
    assert write(ledger, 0, "a", repeated=repeated) == 1
    assert written(ledger) == ["a"]


def test_keys_headers_partitions_and_topics(ledger: CommitLedger, cluster: Cluster) -> None:
    other = f"{ledger.topic}-other"
    given = rows(
        "a",
        "b",
        key=["k", None],
        topic=[ledger.topic, other],
        partition=pa.array([2, None], pa.int32()),
        headers=[[{"key": "h", "value": b"\x01"}], None],
    )
    free = CommitLedger(cluster, f"{ledger.name}.free", None, create=True)
    assert TransactionalWriter(free, QUERY, 0, False).write(0, given, repeated=False) == 2
    [one] = committed(cluster, ledger.topic or "")
    assert (one.partition(), one.key(), one.value(), one.headers()) == (2, b"k", b"a", [("h", b"\x01")])
    assert written(ledger, other) == ["b"]
    assert other in {one.name for one in topics.list_topics(cluster)}


def test_keys_go_where_java_puts_them(ledger: CommitLedger, cluster: Cluster) -> None:
    """As Kafka's own producer: murmur2 of `key-0` … over three partitions."""
    given = rows(*("v" * 4), key=[f"key-{number}" for number in range(4)])
    TransactionalWriter(ledger, QUERY, 0, False).write(0, given, repeated=False)
    found = {(one.key() or b"").decode(): one.partition() for one in committed(cluster, ledger.topic or "")}
    assert found == {f"key-{number}": _murmur2(f"key-{number}".encode()) % 3 for number in range(4)}


def _murmur2(data: bytes) -> int:
    """Kafka's hash of a key, from its definition."""
    mask, m, h = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C ^ len(data)
    for at in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = h * m & mask ^ (k ^ k >> 24) * m & mask
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_many_rows(ledger: CommitLedger) -> None:
    many = pa.RecordBatch.from_pydict({"value": [f"{number}" * 20 for number in range(100_000)]})
    assert TransactionalWriter(ledger, QUERY, 0, False).write(0, iter([many, many]), repeated=False) == 200_000
    assert len(written(ledger)) == 200_000


def test_a_batch_that_is_cut_otherwise_is_refused_only_when_some_of_it_is_written(ledger: CommitLedger) -> None:
    before, now = StartedBatch.of(QUERY, 0, ("a", "b")), StartedBatch.of(QUERY, 0, ("a", "b", "c"))
    _require_same_tasks(before, now, ledger)
    write(ledger, 0, "a", task=1, repeated=True)
    _require_same_tasks(before, StartedBatch.of(QUERY, 0, ("b", "a")), ledger)
    for other in (now, StartedBatch.of(QUERY, 0, ("a", "c"))):
        with pytest.raises(StateMismatch, match="in part"):
            _require_same_tasks(before, other, ledger)
    _require_same_tasks(before, StartedBatch.of(QUERY, 1, ("c",)), ledger)


def test_what_kafka_may_have_forgotten_is_not_written_again_without_a_word(ledger: CommitLedger) -> None:
    begun = StartedBatch.of(QUERY, 3, ("a",))
    _require_same_tasks(begun, begun, ledger)
    with pytest.raises(StateMismatch, match="too long ago"):
        _require_same_tasks(replace(begun, at=begun.at - ledger.retention_s() - 1), begun, ledger)


def test_what_a_ledger_has_noted_goes_with_it(ledger: CommitLedger) -> None:
    begun = StartedBatch.of(QUERY, 3, ("a",), "one")
    for alike in (begun, replace(begun, ledger=""), replace(begun, batch=4, ledger="another")):
        _require_same_tasks(begun, alike, ledger)
    with pytest.raises(StateMismatch, match="it is unknown"):
        _require_same_tasks(begun, replace(begun, ledger="another"), ledger)


def test_a_ledger_is_known_by_kafkas_own_id(ledger: CommitLedger) -> None:
    ledger.read_ledger_id()
    assert ledger.ledger_id == topics.identity(ledger.cluster, LEDGER)
    assert ledger.ledger_id not in ("", topics.identity(ledger.cluster, ledger.topic or ""))


@pytest.mark.parametrize("batch", [6, 7])
def test_a_state_folder_that_is_older_than_the_topic_is_refused(ledger: CommitLedger, batch: int) -> None:
    write(ledger, 7, "a")
    with pytest.raises(TransportedError) as raised:
        write(ledger, batch, "b")
    assert isinstance(from_transport(str(raised.value)), StateMismatch)
    assert written(ledger) == ["a"]


def planned(ledger: CommitLedger, batch: int, plan: str, value: str, *, repeated: bool, task: int = 0) -> int:
    return TransactionalWriter(ledger, QUERY, batch, repeated, plan).write(task, rows(value), repeated=repeated)


def test_a_batch_that_a_copy_of_the_state_folder_has_planned_is_refused(ledger: CommitLedger) -> None:
    assert planned(ledger, 7, "here", "a", repeated=False) == 1
    assert planned(ledger, 7, "here", "a", repeated=False) == 0, "a stage that Spark runs again"
    assert planned(ledger, 7, "here", "a", repeated=True) == 0
    assert planned(ledger, 7, "here", "a", repeated=True) == 0, "what is noted again says the same"
    with pytest.raises(TransportedError) as raised:
        planned(ledger, 7, "there", "b", repeated=True)
    assert isinstance(from_transport(str(raised.value)), StateMismatch)
    assert written(ledger) == ["a"]


def test_who_takes_over_from_one_that_is_ahead_gives_way(ledger: CommitLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run goes on between our look at the note and our taking the id over."""
    planned(ledger, 0, "both", "a", repeated=False)
    before = ledger.committed_batch(0)
    planned(ledger, 1, "there", "b", repeated=True)
    answers = [before]
    noted = CommitLedger.committed_batch
    monkeypatch.setattr(
        CommitLedger, "committed_batch", lambda self, number: answers.pop() if answers else noted(self, number)
    )
    with pytest.raises(TransportedError) as raised:
        planned(ledger, 1, "here", "c", repeated=False)
    assert isinstance(from_transport(str(raised.value)), StateMismatch)
    assert not answers
    assert sorted(written(ledger)) == ["a", "b"]


def test_a_query_does_not_go_on_from_a_checkpoint_that_is_older_than_any_note(
    ledger: CommitLedger, tmp_path: Path
) -> None:
    """Also when the task that has noted the batch would have no rows: others would write what is there by it."""
    context = RunContext(tmp_path, lambda: ledger.cluster, pipeline="p", name="t", query="q", checkpoint=tmp_path)
    require_newest(context, ledger)  # nothing has begun
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    (tmp_path / "offsets").mkdir()
    for batch in (5, 6):
        (tmp_path / "offsets" / str(batch)).write_text(f"v1 {batch}")
    require_newest(context, ledger)
    planned(ledger, 6, _plan_digest(context, 6), "a", repeated=False, task=3)
    require_newest(context, ledger)
    require_newest(replace(context, unfinished_batch=6), ledger)
    (tmp_path / "offsets" / "6").write_text("planned otherwise")
    require_newest(context, ledger)  # it is done, and a replay may have cut it back
    with pytest.raises(StateMismatch, match="already"):
        require_newest(replace(context, unfinished_batch=6), ledger)
    (tmp_path / "offsets" / "6").unlink()
    with pytest.raises(StateMismatch, match="already"):
        require_newest(context, ledger)
    (tmp_path / "metadata").write_text(json.dumps({"id": "another"}))
    require_newest(context, ledger)


def test_notes_of_older_versions_say_no_plan() -> None:
    assert BatchCommit.of(8, "q/lane") == BatchCommit("q", 7, "lane")
    assert BatchCommit.of(8, "q/lane/plan") == BatchCommit("q", 7, "lane", "plan")
    assert BatchCommit.of(8, "somebody else's") == BatchCommit()


def test_what_was_begun_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "sinks" / "one.json"
    begun = StartedBatch.of(QUERY, 0, ("a",))
    BatchLog(path).begin(begun)
    assert BatchLog(path).last(QUERY) == begun
    assert BatchLog(path).last("another") is None


def test_tasks_are_numbered_by_what_they_read() -> None:
    assert task_numbers(("c", "a", "b")) == (2, 0, 1)
    assert task_numbers(("a", "b", "c")) == (0, 1, 2)
    assert task_numbers(("", "", "")) == (0, 1, 2)
