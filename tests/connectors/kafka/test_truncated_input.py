"""A worker fails on rows that break off; the patch of PySpark that this needs is where it was written for."""

from __future__ import annotations

import inspect
import io
import pickle

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.kafka.commit_ledger import CommitLedger
from millrace.connectors.kafka.exactly_once import TransactionalWriter
from millrace.connectors.kafka.truncated_input import fail_on_truncated_input


@pytest.fixture(autouse=True)
def original(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's own method is put back after each test."""
    monkeypatch.setattr(ArrowStreamSerializer, "load_stream", ArrowStreamSerializer.load_stream)


def stream() -> bytes:
    """Two batches and the end mark."""
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
    content = io.BytesIO()
    with pa.ipc.new_stream(content, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    return content.getvalue()


def rows(content: bytes) -> int:
    return sum(batch.num_rows for batch in ArrowStreamSerializer().load_stream(io.BytesIO(content)))


def test_a_complete_stream_is_read() -> None:
    fail_on_truncated_input()
    assert rows(stream()) == 4


def test_a_stream_without_its_end_mark_fails() -> None:
    truncated = stream()[:-8]
    assert rows(truncated) == 4, "Arrow reports it now: the patch is not needed any more"
    fail_on_truncated_input()
    with pytest.raises(EOFError):
        rows(truncated)


def test_a_writer_that_is_unpickled_installs_the_check() -> None:
    writer = TransactionalWriter(CommitLedger(Cluster("127.0.0.1:1"), "p/q/t", "t"), "q", 7, True, "plan")
    copy = pickle.loads(pickle.dumps(writer))  # noqa: S301 - our own
    assert (copy.query, copy.batch, copy.repeated, copy.plan, copy.ledger.name) == ("q", 7, True, "plan", "p/q/t")
    with pytest.raises(EOFError):
        rows(stream()[:-8])


def test_the_spark_version_that_it_was_written_for() -> None:
    assert pyspark.__version__.startswith("4.3"), "look at ArrowStreamSerializer of the new version"
    assert list(inspect.signature(ArrowStreamSerializer.load_stream).parameters) == ["self", "stream"]
