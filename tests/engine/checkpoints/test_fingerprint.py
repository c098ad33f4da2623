"""What Spark's plans say of the state that they keep; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine.checkpoints.fingerprint import fingerprint, with_all_columns_read
from millrace.pipeline.compatibility.state_schema import StateSchema, state_differences

SCHEMA = "user string, other string, n int, m int, at timestamp"


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "events").mkdir()
    return spark.readStream.schema(SCHEMA).json(str(tmp_path / "events"))


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "clicks").mkdir()
    return spark.readStream.schema(SCHEMA).json(str(tmp_path / "clicks"))


def of(frame: DataFrame, **sources: DataFrame) -> StateSchema:
    return fingerprint(frame, frame, sources)


def effects(before: StateSchema, now: StateSchema) -> set[str]:
    return {one.effect for one in state_differences(before, now) if one.part != "columns"}


def test_a_table_without_state(events: DataFrame) -> None:
    found = of(events.select("user").where("n > 1"), events=events)
    assert (found.sources, found.operators, found.columns) == (("events",), (), (("user", "string"),))


def test_keys_and_aggregates(events: DataFrame) -> None:
    found = of(events.groupBy("user", F.lower("other")).agg(F.sum("n"), F.count("*")), events=events)
    (aggregate,) = found.operators
    assert aggregate.keys[0] == ("events.user", "string")
    assert "events.other" in aggregate.keys[1][0]
    assert [kind for _, kind in aggregate.values] == ["bigint", "bigint"]
    assert aggregate.values[0][0] == "sum(events.n)"


def test_what_does_not_matter(events: DataFrame) -> None:
    before = of(events.groupBy("user").agg(F.sum("n")), events=events)
    renamed = events.where("m > 3").select(F.col("user").alias("who"), F.col("n").alias("number"), "at")
    late = renamed.withWatermark("at", "1 minute").groupBy("who").agg(F.sum("number").alias("total"))
    assert effects(before, of(late.where("total > 3"), events=events)) == set()
    events.createOrReplaceTempView("seen")
    sql = "WITH part AS (SELECT * FROM seen WHERE m > 1) SELECT p.user, sum(p.n) AS s FROM part p GROUP BY 1"
    assert effects(before, of(events.sparkSession.sql(sql), events=events)) == set()


@pytest.mark.parametrize(
    ("keys", "aggregates", "effect"),
    [
        (["user", "other"], [F.sum], "breaks"),
        (["other"], [F.sum], "mixes"),
        (["n"], [F.sum], "breaks"),
        (["user"], [F.avg], "breaks"),
        (["user"], [F.count], "mixes"),
        (["user"], [F.sum, F.count], "breaks"),
    ],
)
def test_what_matters(events: DataFrame, keys: list[str], aggregates: list[Any], effect: str) -> None:
    before = of(events.groupBy("user").agg(F.sum("m")), events=events)
    now = of(events.groupBy(*keys).agg(*(one("m") for one in aggregates)), events=events)
    assert effects(before, now) == {effect}


def test_another_argument_is_another_aggregate(events: DataFrame) -> None:
    before, now = (of(events.groupBy("user").agg(F.sum(name)), events=events) for name in ("n", "m"))
    assert effects(before, now) == {"mixes"}
    assert effects(of(events, events=events), before) == {"breaks"}


def test_windows_are_told_by_their_length(events: DataFrame) -> None:
    def windowed(*lengths: str) -> StateSchema:
        return of(events.groupBy(F.window("at", *lengths), "user").count(), events=events)

    assert effects(windowed("1 minute"), windowed("60 seconds")) == set()
    assert effects(windowed("1 minute"), windowed("2 minutes")) == {"mixes"}
    assert effects(windowed("1 minute"), windowed("1 minute", "10 seconds")) == {"mixes"}
    assert effects(windowed("1 minute", "10 seconds"), windowed("1 minute", "20 seconds")) == {"mixes"}
    shifted = windowed("20 seconds", "20 seconds", "10 seconds")
    assert effects(windowed("20 seconds", "10 seconds"), shifted) == {"mixes"}
    assert windowed("1 minute").operators[0].keys[0][0] == "window(events.at, 60s)"
    sessions = [of(events.groupBy(F.session_window("at", gap)).count(), events=events) for gap in ("5 s", "9 s")]
    assert effects(*sessions) == {"mixes"}


def test_deduplication(events: DataFrame) -> None:
    before = of(events.dropDuplicates(["user"]), events=events)
    assert before.operators[0].kind == "deduplicate"
    assert effects(before, of(events.where("n > 1").dropDuplicates(["user"]), events=events)) == set()
    assert effects(before, of(events.dropDuplicates(["other"]), events=events)) == {"mixes"}
    assert effects(before, of(events.dropDuplicates(["user", "other"]), events=events)) == {"breaks"}
    within = events.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["user"])
    assert effects(before, of(within, events=events)) == {"breaks"}


def test_joins_of_streams(events: DataFrame, clicks: DataFrame) -> None:
    left, right = events.withWatermark("at", "1 minute"), clicks.withWatermark("at", "1 minute")

    def joined(on: list[str], how: str, *columns: str) -> StateSchema:
        frame = left.alias("l").join(right.alias("r"), on, how).select(*columns)
        return of(frame, events=events, clicks=clicks)

    before = joined(["user", "at"], "inner", "user", "l.n")
    assert before.sources == ("events", "clicks")
    assert before.operators[0].detail == "inner"
    assert effects(before, joined(["user", "at"], "inner", "user", "l.n", "at")) == set()
    assert effects(before, joined(["user", "at"], "left", "user", "l.n")) == {"breaks"}
    assert effects(before, joined(["user", "at"], "inner", "user", "l.n", "r.m")) == {"breaks"}
    assert effects(before, joined(["user", "at"], "inner", "user", "l.m")) == {"mixes"}


def counted(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """State of one's own; never called here."""
    del key, state
    yield from frames


def test_state_of_ones_own(events: DataFrame) -> None:
    def kept(by: str, state: str = "n int") -> StateSchema:
        made = events.groupBy(by).applyInPandasWithState(counted, "n int", state, "update", "NoTimeout")
        return of(made, events=events)

    assert kept("user").operators[0].kind == "state"
    assert "NoTimeout" in kept("user").operators[0].detail
    assert effects(kept("user"), kept("user")) == set()
    assert effects(kept("user"), kept("other")) == {"mixes"}
    assert effects(kept("user"), kept("user", "n int, m int")) == {"breaks"}


def test_a_join_with_a_static_table_keeps_nothing(events: DataFrame, spark: SparkSession) -> None:
    static = spark.createDataFrame([], "user string, country string")
    found = of(events.join(static, "user"), events=events, static=static)
    assert (found.sources, found.operators) == (("events",), ())
    by_country = of(events.join(static, "user").groupBy("country").count(), events=events, static=static)
    assert by_country.operators[0].keys == (("static.country", "string"),)


def test_sources_are_in_sparks_order(events: DataFrame, clicks: DataFrame) -> None:
    both = {"events": events, "clicks": clicks}
    one, other = of(events.union(clicks), **both), of(clicks.union(events), **both)
    assert (one.sources, other.sources) == (("events", "clicks"), ("clicks", "events"))
    assert effects(one, other) == {"breaks"}


def test_aggregates_that_nobody_reads_are_not_kept(events: DataFrame) -> None:
    table = events.groupBy("user").agg(F.sum("n").alias("s"), F.count("*").alias("c"))
    few = fingerprint(table, table.select("user", "c"), {"events": events})
    swapped = fingerprint(table, table.select("c", "s"), {"events": events})
    assert [one for one, _ in few.operators[0].values] == ["count(1)"]
    assert [one for one, _ in swapped.operators[0].values] == ["count(1)", "sum(events.n)"]


def test_a_whole_table_keeps_them_whoever_reads(events: DataFrame) -> None:
    table = events.groupBy("user").agg(F.sum("n").alias("s"), F.count("*").alias("c"))
    whole = fingerprint(table, with_all_columns_read(table), {"events": events}).operators
    seen = with_all_columns_read(table).observe("panels", F.max("c").alias("most"))
    for written in (
        with_all_columns_read(table).select("user", "c"),
        with_all_columns_read(table).select("c", "s"),
        seen,
    ):
        assert fingerprint(table, written, {"events": events}).operators == whole
