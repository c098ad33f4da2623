"""Notes of batches: the same on the next start, trimmed, and never mistaken for those of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.clients.hadoop import HadoopStore
from millrace.dstreams.batch_log import (
    CheckpointFolder,
    DStreamBatchLog,
    claim_checkpoint,
    oldest_checkpoint,
    remove_other_streams,
)
from millrace.errors import CheckpointIncompatible, FileUnusable, StateMismatch


def test_notes_are_there_again_and_what_was_trimmed_is_refused(tmp_path: Path) -> None:
    notes = DStreamBatchLog(CheckpointFolder.at(str(tmp_path)), "s")
    for time in (100, 200, 300):
        notes.write(time, {"until": time})
    notes.remove_before(300)
    again = DStreamBatchLog(CheckpointFolder.at(str(tmp_path)), "s")
    assert again.newest() == (300, {"until": 300})
    assert again.newest_before(400) == {"until": 300}
    assert again.input_at(400) is None
    with pytest.raises(CheckpointIncompatible):
        again.input_at(200)


def test_the_newest_note_is_never_trimmed(tmp_path: Path) -> None:
    notes = DStreamBatchLog(CheckpointFolder.at(str(tmp_path)), "s")
    notes.write(100, {"until": 1})
    notes.remove_before(1000)
    assert notes.newest() == (100, {"until": 1})


def test_without_a_checkpoint_notes_are_in_memory() -> None:
    notes = DStreamBatchLog(None, "s")
    notes.write(100, {"until": 1})
    assert notes.input_at(100) == {"until": 1}


def test_a_folder_belongs_to_the_program_that_came_first(tmp_path: Path) -> None:
    claim_checkpoint(CheckpointFolder.at(str(tmp_path)), "a.py", ["Kafka topic t"])
    claim_checkpoint(CheckpointFolder.at(str(tmp_path)), "a.py", ["Kafka topic u"])
    with pytest.raises(StateMismatch, match=r"belongs to a\.py") as refused:
        claim_checkpoint(CheckpointFolder.at(str(tmp_path)), "b.py", ["Kafka topic t"])
    assert "Kafka topic t" in str(refused.value.why)


def test_the_oldest_of_sparks_checkpoints(tmp_path: Path) -> None:
    for name in ("checkpoint-3000", "checkpoint-2000.bk", "receivedBlockMetadata", "temp"):
        (tmp_path / name).touch()
    assert oldest_checkpoint(CheckpointFolder.at(tmp_path.as_uri())) == 2000


def test_a_checkpoint_that_hadoop_stores(spark: SparkSession, tmp_path: Path) -> None:
    """A file system of Hadoop's own, here the one of the disk."""
    hadoop = HadoopStore.of(spark)
    folder = CheckpointFolder(hadoop, f"file://{tmp_path}/a checkpoint")
    assert folder.names() == []
    claim_checkpoint(folder, "a.py", ["Kafka topic t"])
    log = DStreamBatchLog(folder, "s")
    for time in (100, 200, 200):
        log.write(time, {"until": time})
    log.remove_before(200)
    assert DStreamBatchLog(folder, "s").newest() == (200, {"until": 200})
    names = [name for name in folder.subfolder("millrace").subfolder("s").names() if not name.endswith(".crc")]
    assert sorted(names) == ["200.json", "forgotten"]
    remove_other_streams(folder, [])
    assert DStreamBatchLog(folder, "s").newest() is None
    (tmp_path / "file").touch()
    with pytest.raises(FileUnusable):
        CheckpointFolder(hadoop, f"file://{tmp_path}/file").write("x", b"")
