"""Which store keeps the state of a plan, and that a checkpoint keeps the one it began with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import millrace as mr
from millrace.engine.checkpoints.query_history import position
from millrace.engine.session.spark_conf import ROCKSDB, ROCKSDB_OPTIONS, has_arbitrary_state, state_store
from millrace.errors import InvalidOption
from millrace.pipeline.plan import Plan, make_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import RunPipeline

COUNT = "SELECT word, count(*) AS n FROM words GROUP BY word"
MEMORY, DISK = "HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"


def plan_of(sql: str, trigger: str = "fastest") -> Plan:
    pipeline = mr.Pipeline("words", trigger=trigger)
    pipeline.source("words", mr.files("in", schema="word string"))
    pipeline.sql("results", sql)
    pipeline.sink("results", mr.memory(), mode="update")
    return make_plan(pipeline.model())


def store_of(master: str | None = None, **given: str) -> str:
    held = {key.replace("_", "."): value for key, value in given.items()}
    made = {one.key: one for one in state_store(plan_of(COUNT), master, held)}
    assert made[ROCKSDB.key].why
    assert {one.key for one in ROCKSDB_OPTIONS} < set(made)  # for checkpoints that were begun there
    return made[ROCKSDB.key].value.rpartition(".")[2]


def test_memory_unless_somebody_says_that_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLRACE_STATE_KEYS", raising=False)
    assert store_of() == MEMORY
    monkeypatch.setenv("MILLRACE_STATE_KEYS", "5000000")
    assert store_of(spark_driver_memory="4g") == DISK
    assert store_of(spark_driver_memory="64g") == MEMORY
    assert store_of("yarn") == DISK
    assert store_of("yarn", spark_executor_memory="16g", spark_executor_instances="4") == MEMORY
    monkeypatch.setenv("MILLRACE_STATE_KEYS", "1000000")
    assert store_of(spark_driver_memory="4096m") == MEMORY
    assert store_of(spark_driver_memory=f"{2**32}b") == MEMORY
    assert store_of(spark_driver_memory=f"{2**30}b") == DISK
    with pytest.raises(InvalidOption):
        store_of(spark_driver_memory="much")


def test_nothing_is_chosen_where_nothing_is_remembered() -> None:
    assert state_store(plan_of("SELECT word FROM words")) == ()


def test_real_time_mode_is_left_to_choose_its_own() -> None:
    assert state_store(plan_of(COUNT, "realtime")) == ()


def test_arbitrary_state_is_in_rocksdb() -> None:
    pipeline = mr.Pipeline("kept")
    pipeline.source("words", mr.files("in", schema="word string"))

    @pipeline.table
    def kept(words: Any) -> Any:
        return words.groupBy("word").transformWithState(None, "word string", "update", "none")

    pipeline.sink(kept, mr.memory(), mode="update")
    plan = make_plan(pipeline.model())
    assert has_arbitrary_state(plan)
    assert state_store(plan) == (ROCKSDB, *ROCKSDB_OPTIONS)


def test_a_checkpoint_keeps_its_store(spark: SparkSession, run_pipeline: RunPipeline, tmp_path: Path) -> None:
    """What is chosen later is for queries that begin later."""
    state, folder = tmp_path / "kept", tmp_path / "in"
    folder.mkdir()

    def more(name: str) -> None:
        (folder / name).write_text("".join(json.dumps({"word": word}) + "\n" for word in "aab"))

    pipeline = mr.Pipeline("words")
    pipeline.source("words", mr.files(str(folder), schema="word string"))
    pipeline.sql("results", COUNT)
    told: list[tuple[str, int]] = []
    pipeline.sink(
        "results", mr.foreach(lambda rows, _: told.extend(map(tuple, rows.collect())), batch=True), mode="update"
    )
    more("1.json")
    run_pipeline(pipeline, state=state)
    spark.conf.set(ROCKSDB.key, ROCKSDB.value)
    try:
        more("2.json")
        run_pipeline(pipeline, state=state)
    finally:
        spark.conf.unset(ROCKSDB.key)
    assert sorted(told) == [("a", 2), ("a", 4), ("b", 1), ("b", 2)]
    at = position(state, make_plan(pipeline.model()).queries[0].name)
    assert at is not None
    assert at.settings[ROCKSDB.key].endswith(MEMORY)
