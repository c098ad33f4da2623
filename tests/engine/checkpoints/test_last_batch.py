"""The batch that ends event time, in the files of a checkpoint, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoint_files import END_MS, SOURCE, commit_last_batch, write_checkpoint
from millrace.connectors.base.registry import connector_names
from millrace.engine.checkpoints.last_batch import (
    emits_at_end,
    has_open_windows,
    has_watermark,
    is_last_batch_done,
    is_last_batch_planned,
    plan_last_batch,
    require_separate_queries,
    withdraw_last_batch,
)
from millrace.errors import InvalidOption, StateMismatch
from millrace.pipeline.loading.yaml import load_yaml
from millrace.pipeline.plan import make_plan


def entry(folder: Path, log: str, batch: int) -> dict[str, int]:
    fields: dict[str, int] = json.loads((folder / log / str(batch)).read_text().split("\n")[1])
    return fields


def test_the_last_batch_reads_nothing_and_has_the_end_as_its_watermark(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    assert plan_last_batch(folder, watermarked=True)
    version, _, *sources = (folder / "offsets" / "4").read_text().split("\n")
    planned = entry(folder, "offsets", 4)
    assert (version, sources) == ("v1", [SOURCE, "-"])
    assert planned["batchWatermarkMs"] == END_MS
    assert planned["batchTimestampMs"] > 5
    assert planned["conf"] == {"spark.sql.shuffle.partitions": "3"}
    assert is_last_batch_planned(folder)
    assert not is_last_batch_done(folder)
    before = (folder / "offsets" / "4").read_bytes()
    assert plan_last_batch(folder, watermarked=True), "a run that was ended in it repeats it"
    assert (folder / "offsets" / "4").read_bytes() == before


def test_a_watermark_that_python_sets_is_in_the_write_checkpoint(tmp_path: Path) -> None:
    assert plan_last_batch(write_checkpoint(tmp_path / "set"), watermarked=False)
    assert not plan_last_batch(write_checkpoint(tmp_path / "none", watermark=0, after=0), watermarked=False)
    assert plan_last_batch(write_checkpoint(tmp_path / "silent", watermark=0, after=0), watermarked=True)


def test_nothing_is_planned_where_nothing_is_held(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert not plan_last_batch(tmp_path / "new", watermarked=True)
    stateless = write_checkpoint(tmp_path / "stateless")
    (stateless / "state").rmdir()
    assert not plan_last_batch(stateless, watermarked=True)
    assert not plan_last_batch(write_checkpoint(tmp_path / "failed", committed=False), watermarked=True)
    assert not plan_last_batch(write_checkpoint(tmp_path / "ended", watermark=END_MS, after=END_MS), watermarked=True)


def test_an_unknown_format_is_not_written(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    plan = folder / "offsets" / "3"
    plan.write_text(plan.read_text().replace("v1", "v2"))
    with pytest.raises(StateMismatch, match="format"):
        plan_last_batch(folder, watermarked=True)


def test_it_is_withdrawn(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    plan_last_batch(folder, watermarked=True)
    commit_last_batch(folder)
    assert is_last_batch_done(folder)
    assert not is_last_batch_planned(folder)
    withdraw_last_batch(folder)
    assert not is_last_batch_done(folder)
    assert entry(folder, "commits", 4)["nextBatchWatermarkMs"] == 2000
    assert entry(folder, "offsets", 4)["batchWatermarkMs"] == 2000
    assert not (folder / "commits" / ".4.crc").exists()
    assert (folder / "offsets" / "4").read_text().endswith(f"{SOURCE}\n-")


@pytest.mark.parametrize(
    ("sql", "mode", "emits"),
    [
        ("SELECT window(at, '1 minute') AS w, count(*) AS n FROM a GROUP BY 1", "append", True),
        ("SELECT window(at, '1 minute') AS w, count(*) AS n FROM a GROUP BY 1", "update", False),
        ("SELECT window(at, '1 minute') AS w, count(*) AS n FROM a GROUP BY 1", "complete", False),
        ("SELECT word FROM a", "append", False),
        ("SELECT DISTINCT word, at FROM a", "append", True),
        ("SELECT a.word FROM a JOIN b ON a.word = b.word AND a.at = b.at", "append", False),
        ("SELECT a.word FROM a LEFT JOIN b ON a.word = b.word AND a.at = b.at", "append", True),
    ],
)
def test_which_queries_hold_rows_until_the_end(tmp_path: Path, sql: str, mode: str, emits: bool) -> None:
    source = "{kafka: %s, schema: 'word string, at timestamp', watermark: [at, 1s]}"
    file = tmp_path / "p.yaml"
    file.write_text(
        f"name: p\nsources:\n  a: {source % 'a'}\n  b: {source % 'b'}\ntables:\n  t: {json.dumps(sql)}\n"
        f"sinks: [{{from: t, kafka: t, key: t, mode: {mode}}}]\n"
    )
    pipeline = load_yaml(file, connector_names())
    (query,) = make_plan(pipeline).queries
    assert emits_at_end(pipeline, query) is emits
    assert has_watermark(pipeline, query)


COUNTED = "SELECT window(at, '1 minute') AS w, count(*) AS n FROM words GROUP BY 1"
LATER = "SELECT window(w, '5 minutes') AS v, sum(n) AS n FROM again GROUP BY 1"


def test_a_run_that_is_ended_in_its_first_batch_leaves_windows_open(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    source = "words: {kafka: words, schema: 'at timestamp', watermark: [at, 1s]}"
    file.write_text(
        f"name: p\nsources: {{{source}}}\ntables: {{t: {json.dumps(COUNTED)}}}\nsinks: [{{from: t, kafka: t}}]\n"
    )
    pipeline = load_yaml(file, connector_names())
    (query,) = make_plan(pipeline).queries
    assert has_open_windows(pipeline, query, write_checkpoint(tmp_path / "first", committed=False))
    assert not has_open_windows(pipeline, query, tmp_path / "new")


@pytest.mark.parametrize(
    ("first", "second", "read", "separate"),
    [
        (COUNTED, "SELECT n FROM again", "kafka: counts", False),
        ("SELECT at AS w, 1 AS n FROM words", LATER, "kafka: counts", False),
        ("SELECT at AS w, 1 AS n FROM words", "SELECT n FROM again", "kafka: counts", True),
        (COUNTED, LATER, "kafka: others", True),
        (COUNTED, LATER, "kafka: , pattern: c.*", False),
        (COUNTED, LATER, "kafka: , pattern: o.*", True),
        ("SELECT at AS w, 1 AS n, word FROM words", LATER, "kafka: others", False),
    ],
)
def test_event_time_does_not_end_where_queries_feed_each_other(
    tmp_path: Path, first: str, second: str, read: str, separate: bool
) -> None:
    file = tmp_path / "p.yaml"
    written = "kafka: , topic_column: word" if "word FROM" in first else "kafka: counts"
    sources = f"""\
  words: {{kafka: words, schema: 'word string, at timestamp', watermark: [at, 1s]}}
  again: {{{read}, schema: 'w timestamp, n long', watermark: [w, 1s]}}"""
    tables = f"  counts: {json.dumps(first)}\n  later: {json.dumps(second)}"
    sinks = f"sinks: [{{from: counts, {written}}}, {{from: later, kafka: later}}]"
    file.write_text(f"name: p\nsources:\n{sources}\ntables:\n{tables}\n{sinks}\n")
    plan = make_plan(load_yaml(file, connector_names()))
    if separate:
        require_separate_queries(plan)
    else:
        with pytest.raises(InvalidOption):
            require_separate_queries(plan)
