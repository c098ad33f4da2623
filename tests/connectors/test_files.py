"""A file as a sink for records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.files import FilesRecordSink, FilesSink
from millrace.errors import FileUnusable, InvalidOption, MillraceError, StateMismatch
from millrace.object_stores import mounted
from test_object_stores import Kept


def test_values_are_appended_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before\n")
    answers: list[MillraceError | None] = []
    sink = FilesRecordSink(SinkTarget(path=str(path)))
    sink.write([Record(b"a"), Record(None)], answers.append)
    assert path.read_bytes() == b"before\na\n\n"
    assert answers == [None]
    assert sink.close().delivered == 2


def test_a_path_is_needed() -> None:
    with pytest.raises(InvalidOption):
        FilesRecordSink(SinkTarget())


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable):
        FilesRecordSink(SinkTarget(path=str(tmp_path)))


def test_a_full_disk_is_a_failure() -> None:
    sink = FilesRecordSink(SinkTarget(path="/dev/full"))
    with pytest.raises(FileUnusable):
        sink.write([Record(b"x" * 100_000)], lambda _: None)
    with pytest.raises(FileUnusable):
        sink.close()


def test_a_folder_that_is_ahead_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    """Spark would skip the batches of a restored state folder by their numbers, whatever is in them."""
    nothing: Any = None
    context = RunContext(tmp_path, nothing, pipeline="p", name="t", checkpoint=tmp_path / "checkpoint")
    sink, log, offsets = FilesSink(path=str(tmp_path / "out")), tmp_path / "out/_spark_metadata", "checkpoint/offsets"
    sink.require_new()
    sink.require_newest(context)
    log.mkdir(parents=True)
    for name in ("8", "9.compact", "10", ".10.crc"):
        (log / name).touch()
    (tmp_path / offsets).mkdir(parents=True)
    for batch in (9, 10):
        (tmp_path / offsets / str(batch)).touch()
    sink.require_newest(context)
    (tmp_path / offsets / "10").unlink()
    with pytest.raises(StateMismatch, match="holds batch 10, and the query has begun only 9"):
        sink.require_newest(context)
    with pytest.raises(StateMismatch):
        sink.require_new()


@pytest.mark.parametrize("url", ["hdfs:///out", "s3a://bucket", "s3a://bucket/out"])
def test_any_url_that_hadoop_takes_can_be_written_to(url: str, tmp_path: Path) -> None:
    nothing: Any = None
    context = RunContext(tmp_path, nothing, pipeline="p", name="t", checkpoint=tmp_path / "checkpoint")
    store, sink = Kept(), FilesSink(path=url)
    sink.require_new()  # before Spark is there
    with mounted(store):
        sink.require_new()
        sink.require_newest(context)
        store.files[f"{url}/_spark_metadata/3"] = b""
        if not url.startswith("hdfs:///"):  # whose that is only Hadoop knows
            with pytest.raises(StateMismatch):
                sink.require_new()
