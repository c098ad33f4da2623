"""Checkpoints cut back to an end, and how far a query has got, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millrace.engine.checkpoints.checkpoint import replayed_until, trim

END = {"posts": {"0": 10, "1": 20}, "other": {"0": 5}}


def checkpoint(state: Path, *batches: list[Any], done: int) -> Path:
    """The checkpoint of a query as Spark writes it."""
    folder = state / "checkpoints" / "query"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, sources in enumerate(batches):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), *map(json.dumps, sources)]
        (folder / "offsets" / str(number)).write_text("\n".join(lines))
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number <= done:
            (folder / "commits" / str(number)).write_text("v1\n{}")
    return folder


def offsets(folder: Path, batch: int) -> list[Any]:
    return [json.loads(one) for one in (folder / "offsets" / str(batch)).read_text().split("\n")[2:]]


def test_what_goes_beyond_the_end_is_cut_back_also_in_a_batch_that_was_only_begun(tmp_path: Path) -> None:
    first = [{"posts": {"0": 4, "1": 20}}, {"logOffset": 0}]
    second = [{"posts": {"0": 14, "1": 21}}, {"logOffset": 1}]
    third = [{"posts": {"0": 30, "1": 40, "2": 7}, "later": {"0": 3}}, {"logOffset": 2}]
    folder = checkpoint(tmp_path, first, second, third, done=1)
    trim(folder, END)
    assert offsets(folder, 0) == first
    assert (folder / "offsets" / ".0.crc").exists()
    assert offsets(folder, 1) == [{"posts": {"0": 10, "1": 20}}, {"logOffset": 1}]
    assert not (folder / "offsets" / ".1.crc").exists()
    assert offsets(folder, 2) == [{"posts": {"0": 10, "1": 20, "2": 0}, "later": {"0": 0}}, {"logOffset": 2}]
    before = (folder / "offsets" / "1").read_bytes()
    trim(folder, END)
    assert (folder / "offsets" / "1").read_bytes() == before


def test_how_far_a_query_is_counts_finished_batches_and_the_slower_of_two_sources(tmp_path: Path) -> None:
    sources = [{"posts": {"0": 14, "1": 3}}, {"posts": {"0": 8, "1": 9}}]
    folder = checkpoint(tmp_path, sources, [{"posts": {"0": 99, "1": 99}}], done=0)
    begin = {"posts": {"0": 2, "1": 3}, "other": {"0": 5}}
    assert replayed_until(folder, begin, END) == {("posts", "0"): 8, ("posts", "1"): 3}
    assert replayed_until(tmp_path / "none", begin, END) == {("posts", "0"): 2, ("posts", "1"): 3}
