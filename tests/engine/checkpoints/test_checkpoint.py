"""What a checkpoint says of the batch that failed."""

from __future__ import annotations

from pathlib import Path

from millrace.engine.checkpoints.checkpoint import BatchState, batch_state


def log(folder: Path, batch: int, text: str = "v1\n{}\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(batch)).write_text(text)
    (folder / f".{batch}.crc").write_text("")


def offsets(end: int) -> str:
    return (
        f'v1\n{{"batchWatermarkMs":0,"conf":{{"spark.sql.shuffle.partitions":"2"}}}}\n{{"posts":{{"0":{end},"1":7}}}}'
    )


def test_nothing_yet(tmp_path: Path) -> None:
    assert batch_state(tmp_path) == BatchState(-1, None)


def test_between_two_batches(tmp_path: Path) -> None:
    log(tmp_path / "offsets", 10, offsets(3))
    log(tmp_path / "commits", 10)
    assert batch_state(tmp_path) == BatchState(10, None)


def test_in_a_batch_its_records_are_named(tmp_path: Path) -> None:
    log(tmp_path / "offsets", 9, offsets(3))
    log(tmp_path / "offsets", 10, offsets(8))
    log(tmp_path / "commits", 9)
    found = batch_state(tmp_path)
    assert (found.done, found.batch) == (9, 10)
    assert str(found) == "batch 10: topic posts partition 0 offsets 3-7"


def test_the_first_batch_and_other_sources(tmp_path: Path) -> None:
    log(tmp_path / "offsets", 0, "v1\n{}\n5")
    assert str(batch_state(tmp_path)) == "batch 0"
