"""Whether the windows of a checkpoint's last batch were closed, and how they still are, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from millrace.connectors.base.query_checkpoint import last_committed_batch
from millrace.engine.checkpoints.checkpoint import is_closed, reopen_last_batch


def checkpoint(folder: Path, *marks: tuple[int, int], begun: bool = False) -> Path:
    """One with batches of a watermark each, and of the one that was seen in it."""
    for name in ("offsets", "commits", "state"):
        (folder / name).mkdir()
    for number, (now, after) in enumerate(marks):
        (folder / "offsets" / str(number)).write_text("v1\n" + json.dumps({"batchWatermarkMs": now}) + "\n{}")
        (folder / "commits" / str(number)).write_text("v1\n" + json.dumps({"nextBatchWatermarkMs": after}))
        (folder / "commits" / f".{number}.crc").write_bytes(b"crc")
    if begun:
        (folder / "offsets" / str(len(marks))).write_text("v1\n{}\n{}")
    return folder


def test_the_last_batch_comes_again_where_its_watermark_had_no_effect_yet(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, (0, 10), (10, 40))
    assert not is_closed(folder)
    reopen_last_batch(folder)
    assert last_committed_batch(folder) == 0
    assert not (folder / "commits" / ".1.crc").exists()


def test_a_query_without_state_has_nothing_to_close(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, (0, 10))
    assert not is_closed(folder)
    (folder / "state").rmdir()
    assert is_closed(folder)


def test_what_is_closed_or_begun_stays(tmp_path: Path) -> None:
    for name, begun, marks in (("closed", False, [(0, 10), (10, 10)]), ("begun", True, [(0, 10)]), ("none", False, [])):
        (tmp_path / name).mkdir()
        folder = checkpoint(tmp_path / name, *marks, begun=begun)
        before = last_committed_batch(folder)
        reopen_last_batch(folder)
        assert last_committed_batch(folder) == before
        assert is_closed(folder) is (name != "begun")
