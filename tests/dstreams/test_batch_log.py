"""Notes of batches: the same on the next start, trimmed, and never mistaken for those of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.dstreams.batch_log import DStreamBatchLog, LocalFolder, folder_at, oldest_checkpoint, require_own
from millrace.errors import CheckpointIncompatible, StateMismatch


def test_notes_are_there_again_and_what_was_trimmed_is_refused(tmp_path: Path) -> None:
    notes = DStreamBatchLog(LocalFolder(tmp_path), "s")
    for time in (100, 200, 300):
        notes.write(time, {"until": time})
    notes.forget(before=300)
    again = DStreamBatchLog(LocalFolder(tmp_path), "s")
    assert again.last() == (300, {"until": 300})
    assert again.before(400) == {"until": 300}
    assert again.at(400) is None
    with pytest.raises(CheckpointIncompatible):
        again.at(200)


def test_the_newest_note_is_never_trimmed(tmp_path: Path) -> None:
    notes = DStreamBatchLog(LocalFolder(tmp_path), "s")
    notes.write(100, {"until": 1})
    notes.forget(before=1000)
    assert notes.last() == (100, {"until": 1})


def test_without_a_checkpoint_notes_are_in_memory() -> None:
    notes = DStreamBatchLog(None, "s")
    notes.write(100, {"until": 1})
    assert notes.at(100) == {"until": 1}


def test_a_folder_belongs_to_the_program_that_came_first(tmp_path: Path) -> None:
    require_own(LocalFolder(tmp_path), "a.py", ["Kafka topic t"])
    require_own(LocalFolder(tmp_path), "a.py", ["Kafka topic u"])
    with pytest.raises(StateMismatch, match=r"belongs to a\.py") as refused:
        require_own(LocalFolder(tmp_path), "b.py", ["Kafka topic t"])
    assert "Kafka topic t" in str(refused.value.why)


def test_the_oldest_of_sparks_checkpoints(tmp_path: Path) -> None:
    for name in ("checkpoint-3000", "checkpoint-2000.bk", "receivedBlockMetadata", "temp"):
        (tmp_path / name).touch()
    assert oldest_checkpoint(folder_at(tmp_path.as_uri(), None, None)) == 2000
