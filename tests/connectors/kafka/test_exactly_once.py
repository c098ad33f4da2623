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
    _planned,
    _require_alike,
    require_newest,
)
from millrace.errors import StateMismatch, TakenOver
from millrace.errors.transport import TransportedError, from_transport

QUERY = "a-query"


@pytest.fixture
def outlet(cluster: Cluster, topic: str) -> CommitLedger:
    made = CommitLedger(cluster, f"test.{uuid.uuid4().hex[:8]}.{topic}", topic, create=True)
    made.prepare()
    return made


def rows(*values: str, **columns: list[Any]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"value": list(values), **columns})])


def write(outlet: CommitLedger, batch: int, *values: str, task: int = 0, anew: bool = False, query: str = QUERY) -> int:
    return TransactionalWriter(outlet, query, batch, anew).write(task, rows(*values), anew=anew)


def written(outlet: CommitLedger, topic: str | None = None) -> list[str]:
    """The values that a reader of committed records sees, up to the end of the topic."""
    return [(one.value() or b"").decode() for one in committed(outlet.cluster, topic or outlet.topic or "")]


def test_a_batch_that_comes_again_is_written_once(outlet: CommitLedger) -> None:
    assert write(outlet, 0, "a", "b") == 2
    assert write(outlet, 0, "a", "b", anew=True) == 0
    assert write(outlet, 1, "c") == 1
    assert write(outlet, 1, "c", anew=True) == 0
    assert Counter(written(outlet)) == Counter("abc")


def test_tasks_do_not_know_each_other(outlet: CommitLedger) -> None:
    for task in (0, 1, 49, 50, 120):
        assert write(outlet, 0, f"task {task}", task=task) == 1
        assert write(outlet, 0, f"task {task}", task=task, anew=True) == 0
    assert len(written(outlet)) == 5


def test_another_checkpoint_begins_anew(outlet: CommitLedger) -> None:
    write(outlet, 7, "a")
    assert write(outlet, 0, "a", query="another") == 1


def test_a_task_without_rows_writes_nothing(outlet: CommitLedger) -> None:
    assert TransactionalWriter(outlet, QUERY, 0, False).write(0, rows(), anew=False) == 0
    assert outlet.committed_batch(0) == BatchCommit()


def test_rows_are_read_to_the_end_even_when_they_are_written_already(outlet: CommitLedger) -> None:
    write(outlet, 0, "a")
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for value in "ab":
            taken.append(value)
            yield from rows(value)

    assert TransactionalWriter(outlet, QUERY, 0, True).write(0, batches(), anew=True) == 0
    assert taken == ["a", "b"]


def test_what_fails_on_the_way_leaves_nothing(outlet: CommitLedger) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        TransactionalWriter(outlet, QUERY, 0, False).write(0, batches(), anew=False)
    assert outlet.committed_batch(0) == BatchCommit()
    assert write(outlet, 0, "a", anew=True) == 1
    assert written(outlet) == ["a"]


def test_who_was_overtaken_writes_nothing(outlet: CommitLedger) -> None:
    overtaken, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        overtaken.set()
        go_on.wait(60)
        yield from rows("b")

    def zombie() -> None:
        try:
            TransactionalWriter(outlet, QUERY, 0, False).write(0, slow(), anew=False)
        except TransportedError as error:
            raised.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    assert overtaken.wait(60)
    assert write(outlet, 0, "a", "b", anew=True) == 2
    go_on.set()
    thread.join(60)
    assert isinstance(from_transport(str(raised[0])), TakenOver)
    assert sorted(written(outlet)) == ["a", "b"]
    assert write(outlet, 0, "a", "b", anew=True) == 0


@pytest.mark.parametrize("anew", [True, False], ids=["the batch comes again", "another folder"])
def test_who_was_killed_between_its_note_and_its_commit_keeps_nobody_waiting(
    outlet: CommitLedger, *, anew: bool
) -> None:
    """Kafka tells nobody what is noted while that transaction is open, which may be for ten minutes."""
    killed = outlet.open(0)
    killed._client.begin_transaction()
    killed.send(outlet.topic or "", Record(b"a"))
    killed.settle()
    with outlet._asking(0) as progress:
        note = TopicPartition(LEDGER, 0, 1, f"{QUERY}/{killed.instance}/")
        killed._client.send_offsets_to_transaction([note], progress.group)
    assert set(outlet.all_committed_batches(1)) == {BatchCommit()}
    assert write(outlet, 0, "a", anew=anew) == 1
    assert written(outlet) == ["a"]


def test_keys_headers_partitions_and_topics(outlet: CommitLedger, cluster: Cluster) -> None:
    other = f"{outlet.topic}-other"
    given = rows(
        "a",
        "b",
        key=["k", None],
        topic=[outlet.topic, other],
        partition=pa.array([2, None], pa.int32()),
        headers=[[{"key": "h", "value": b"\x01"}], None],
    )
    free = CommitLedger(cluster, f"{outlet.name}.free", None, create=True)
    assert TransactionalWriter(free, QUERY, 0, False).write(0, given, anew=False) == 2
    [one] = committed(cluster, outlet.topic or "")
    assert (one.partition(), one.key(), one.value(), one.headers()) == (2, b"k", b"a", [("h", b"\x01")])
    assert written(outlet, other) == ["b"]
    assert other in {one.name for one in topics.list_topics(cluster)}


def test_keys_go_where_java_puts_them(outlet: CommitLedger, cluster: Cluster) -> None:
    """As Kafka's own producer: murmur2 of `key-0` … over three partitions."""
    given = rows(*("v" * 4), key=[f"key-{number}" for number in range(4)])
    TransactionalWriter(outlet, QUERY, 0, False).write(0, given, anew=False)
    found = {(one.key() or b"").decode(): one.partition() for one in committed(cluster, outlet.topic or "")}
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


def test_many_rows(outlet: CommitLedger) -> None:
    many = pa.RecordBatch.from_pydict({"value": [f"{number}" * 20 for number in range(100_000)]})
    assert TransactionalWriter(outlet, QUERY, 0, False).write(0, iter([many, many]), anew=False) == 200_000
    assert len(written(outlet)) == 200_000


def test_a_batch_that_is_cut_otherwise_is_refused_only_when_some_of_it_is_written(outlet: CommitLedger) -> None:
    before, now = StartedBatch.of(QUERY, 0, ("a", "b")), StartedBatch.of(QUERY, 0, ("a", "b", "c"))
    _require_alike(before, now, outlet)
    write(outlet, 0, "a", task=1, anew=True)
    _require_alike(before, StartedBatch.of(QUERY, 0, ("b", "a")), outlet)
    for other in (now, StartedBatch.of(QUERY, 0, ("a", "c"))):
        with pytest.raises(StateMismatch, match="in part"):
            _require_alike(before, other, outlet)
    _require_alike(before, StartedBatch.of(QUERY, 1, ("c",)), outlet)


def test_what_kafka_may_have_forgotten_is_not_written_again_without_a_word(outlet: CommitLedger) -> None:
    begun = StartedBatch.of(QUERY, 3, ("a",))
    _require_alike(begun, begun, outlet)
    with pytest.raises(StateMismatch, match="too long ago"):
        _require_alike(replace(begun, at=begun.at - outlet.forgets_after() - 1), begun, outlet)


def test_what_a_ledger_has_noted_goes_with_it(outlet: CommitLedger) -> None:
    begun = StartedBatch.of(QUERY, 3, ("a",), "one")
    for alike in (begun, replace(begun, ledger=""), replace(begun, batch=4, ledger="another")):
        _require_alike(begun, alike, outlet)
    with pytest.raises(StateMismatch, match="nobody can tell"):
        _require_alike(begun, replace(begun, ledger="another"), outlet)


def test_a_ledger_is_known_by_kafkas_own_id(outlet: CommitLedger) -> None:
    outlet.look()
    assert outlet.ledger == topics.identity(outlet.cluster, LEDGER)
    assert outlet.ledger not in ("", topics.identity(outlet.cluster, outlet.topic or ""))


@pytest.mark.parametrize("batch", [6, 7])
def test_a_state_folder_that_is_older_than_the_topic_is_refused(outlet: CommitLedger, batch: int) -> None:
    write(outlet, 7, "a")
    with pytest.raises(TransportedError) as raised:
        write(outlet, batch, "b")
    assert isinstance(from_transport(str(raised.value)), StateMismatch)
    assert written(outlet) == ["a"]


def planned(outlet: CommitLedger, batch: int, plan: str, value: str, *, anew: bool, task: int = 0) -> int:
    return TransactionalWriter(outlet, QUERY, batch, anew, plan).write(task, rows(value), anew=anew)


def test_a_batch_that_a_copy_of_the_state_folder_has_planned_is_refused(outlet: CommitLedger) -> None:
    assert planned(outlet, 7, "here", "a", anew=False) == 1
    assert planned(outlet, 7, "here", "a", anew=False) == 0, "a stage that Spark runs again"
    assert planned(outlet, 7, "here", "a", anew=True) == 0
    assert planned(outlet, 7, "here", "a", anew=True) == 0, "what is noted again says the same"
    with pytest.raises(TransportedError) as raised:
        planned(outlet, 7, "there", "b", anew=True)
    assert isinstance(from_transport(str(raised.value)), StateMismatch)
    assert written(outlet) == ["a"]


def test_who_takes_over_from_one_that_is_ahead_gives_way(outlet: CommitLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run goes on between our look at the note and our taking the id over."""
    planned(outlet, 0, "both", "a", anew=False)
    before = outlet.committed_batch(0)
    planned(outlet, 1, "there", "b", anew=True)
    answers = [before]
    noted = CommitLedger.committed_batch
    monkeypatch.setattr(
        CommitLedger, "committed_batch", lambda self, number: answers.pop() if answers else noted(self, number)
    )
    with pytest.raises(TransportedError) as raised:
        planned(outlet, 1, "here", "c", anew=False)
    assert isinstance(from_transport(str(raised.value)), StateMismatch)
    assert not answers
    assert sorted(written(outlet)) == ["a", "b"]


def test_a_query_does_not_go_on_from_a_checkpoint_that_is_older_than_any_note(
    outlet: CommitLedger, tmp_path: Path
) -> None:
    """Also when the task that has noted the batch would have no rows: others would write what is there by it."""
    site = RunContext(tmp_path, lambda: outlet.cluster, pipeline="p", name="t", query="q", checkpoint=tmp_path)
    require_newest(site, outlet)  # nothing has begun
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    (tmp_path / "offsets").mkdir()
    for batch in (5, 6):
        (tmp_path / "offsets" / str(batch)).write_text(f"v1 {batch}")
    require_newest(site, outlet)
    planned(outlet, 6, _planned(site, 6), "a", anew=False, task=3)
    require_newest(site, outlet)
    require_newest(replace(site, unfinished_batch=6), outlet)
    (tmp_path / "offsets" / "6").write_text("planned otherwise")
    require_newest(site, outlet)  # it is done, and a replay may have cut it back
    with pytest.raises(StateMismatch, match="already"):
        require_newest(replace(site, unfinished_batch=6), outlet)
    (tmp_path / "offsets" / "6").unlink()
    with pytest.raises(StateMismatch, match="already"):
        require_newest(site, outlet)
    (tmp_path / "metadata").write_text(json.dumps({"id": "another"}))
    require_newest(site, outlet)


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
