"""Event time: windows, watermarks, late rows, deduplication, joins of streams, and state of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import millrace as mr
from millrace.connectors.memory import MEMORY
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]
SCHEMA = "user string, n int, at timestamp"


def event(user: str, second: int, n: int = 1) -> dict[str, Any]:
    """Something that happened in the first minutes of an hour."""
    return {"user": user, "n": n, "at": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"}


def put(folder: Path, name: str, *events: dict[str, Any]) -> None:
    """A file of events."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in events))


def put_in_turn(folder: Path, *files: list[dict[str, Any]]) -> None:
    """Files that are read one after another, a batch each."""
    for number, events in enumerate(files):
        put(folder, f"{number}.json", *events)
        os.utime(folder / f"{number}.json", (number, number))


def rows(table: str) -> list[dict[str, Any]]:
    """What a table in memory holds."""
    return sorted(MEMORY.tables()[table].to_pylist(), key=repr)


def written_to(folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder of JSON files."""
    return [orjson.loads(line) for file in folder.glob("*.json") for line in file.read_bytes().splitlines()]


def over(folder: Path, query: str, *, delay: str = "5 seconds") -> mr.Pipeline:
    """A pipeline of one query over events in files."""
    pipeline = mr.Pipeline("timed")
    pipeline.source("events", mr.files(str(folder), schema=SCHEMA, max_files=1), watermark=("at", delay))
    pipeline.sql("result", query)
    return pipeline


def starts(table: str, column: str = "window") -> list[tuple[str, int]]:
    """The windows of a result as minute and second, with their counts."""
    return sorted((row[column]["start"].strftime("%M:%S"), row["count"]) for row in rows(table))


def test_tumbling_windows(tmp_path: Path, run_pipeline: Run) -> None:
    put(tmp_path / "in", "1.json", *(event("a", second) for second in (0, 3, 11, 12, 25)))
    pipeline = over(
        tmp_path / "in", "SELECT window(at, '10 seconds') AS window, count(*) AS count FROM events GROUP BY 1"
    )
    pipeline.sink("result", mr.memory(), mode="complete")
    run_pipeline(pipeline)
    assert starts("result") == [("00:00", 2), ("00:10", 2), ("00:20", 1)]


def test_sliding_windows(tmp_path: Path, run_pipeline: Run) -> None:
    put(tmp_path / "in", "1.json", *(event("a", second) for second in (10, 14, 16)))
    query = "SELECT window(at, '10 seconds', '5 seconds') AS window, count(*) AS count FROM events GROUP BY 1"
    pipeline = over(tmp_path / "in", query)
    pipeline.sink("result", mr.memory(), mode="complete")
    run_pipeline(pipeline)
    assert starts("result") == [("00:05", 2), ("00:10", 3), ("00:15", 1)]


def test_session_windows(tmp_path: Path, run_pipeline: Run) -> None:
    put(tmp_path / "in", "1.json", *(event("a", second) for second in (0, 4, 8, 30)), event("b", 2))
    query = "SELECT session_window(at, '5 seconds') AS session, user, count(*) AS count FROM events GROUP BY 1, 2"
    pipeline = over(tmp_path / "in", query)
    pipeline.sink("result", mr.memory(), mode="complete")
    run_pipeline(pipeline)
    assert starts("result", "session") == [("00:00", 3), ("00:02", 1), ("00:30", 1)]


def test_late_rows_are_left_out_and_counted(tmp_path: Path, run_pipeline: Run) -> None:
    query = "SELECT window(at, '10 seconds') AS window, count(*) AS count FROM events GROUP BY 1"
    pipeline = over(tmp_path / "in", query)
    pipeline.sink("result", mr.files(str(tmp_path / "out"), format="json"))
    batches = ((0, 1, 40), (41,), (2, 12, 45), (90,), (91,))
    put_in_turn(tmp_path / "in", *([event("a", second) for second in seconds] for seconds in batches))
    # Spark decodes, and counts them after the first step of an aggregation: rows of one window in a batch are one.
    late = run_pipeline(pipeline).query("result").late_rows
    written = written_to(tmp_path / "out")
    assert sorted((row["window"]["start"][14:19], row["count"]) for row in written) == [("00:00", 2), ("00:40", 3)]
    assert late == 2


def test_deduplication_within_the_watermark(tmp_path: Path, run_pipeline: Run) -> None:
    put(tmp_path / "in", "1.json", event("a", 1), event("b", 2), event("a", 3))
    pipeline = mr.Pipeline("unique")
    pipeline.source("events", mr.files(str(tmp_path / "in"), schema=SCHEMA), watermark=("at", "1 minute"))

    @pipeline.table
    def unique(events: Any) -> Any:
        return events.dropDuplicatesWithinWatermark(["user"])

    pipeline.sink("unique", mr.memory())
    run_pipeline(pipeline)
    assert sorted(row["user"] for row in rows("unique")) == ["a", "b"]


JOINS = {
    "inner": [("a", 1, 2)],
    "leftOuter": [("a", 1, 2), ("b", 5, None)],
    "rightOuter": [("a", 1, 2), ("c", None, 6)],
    "fullOuter": [("a", 1, 2), ("b", 5, None), ("c", None, 6)],
    "leftSemi": [("a", 1, None)],
}


def joined(kind: str) -> Callable[..., Any]:
    """A table: what happened on the right within ten seconds of the left."""

    def table(lefts: Any, rights: Any) -> Any:
        l, r = lefts.alias("l"), rights.alias("r")  # noqa: E741
        near = F.expr("l.user = r.user AND r.at BETWEEN l.at AND l.at + INTERVAL 10 SECONDS")
        found = l.join(r, near, kind)
        if kind == "leftSemi":
            return found.select("user", F.col("n").alias("l"), F.lit(None).cast("int").alias("r"))
        return found.select(
            F.coalesce("l.user", "r.user").alias("user"), F.col("l.n").alias("l"), F.col("r.n").alias("r")
        )

    table.__name__ = kind.lower()
    return table


def test_joins_of_streams(tmp_path: Path, run_pipeline: Run) -> None:
    pipeline = mr.Pipeline("joined")
    # Later events on both sides move the watermark on, past what can still be joined.
    later = {side: [[event(f"{side}{second}", second, 0)] for second in (100, 200, 300)] for side in ("left", "right")}
    put_in_turn(tmp_path / "left", [event("a", 1, 1), event("b", 1, 5)], *later["left"])
    put_in_turn(tmp_path / "right", [event("a", 3, 2), event("c", 3, 6)], *later["right"])
    for side in later:
        source = mr.files(str(tmp_path / side), schema=SCHEMA, max_files=1)
        pipeline.source(f"{side}s", source, watermark=("at", "2 seconds"))
    for kind in JOINS:
        pipeline.table(joined(kind))
        pipeline.sink(kind.lower(), mr.files(str(tmp_path / kind), format="json"))

    run_pipeline(pipeline)

    for kind, expected in JOINS.items():
        written = written_to(tmp_path / kind)
        found = [(row["user"], row.get("l"), row.get("r")) for row in written if len(row["user"]) == 1]
        assert sorted(found, key=repr) == sorted(expected, key=repr), kind


def test_aggregations_one_after_another(tmp_path: Path, run_pipeline: Run) -> None:
    pipeline = over(
        tmp_path / "in",
        "SELECT window(at, '5 seconds') AS window, user, count(*) AS count FROM events GROUP BY 1, 2",
        delay="1 second",
    )
    pipeline.sql(
        "per_minute",
        "SELECT window(window_time(window), '1 minute') AS window, max(count) AS count FROM result GROUP BY 1",
    )
    pipeline.sink("per_minute", mr.files(str(tmp_path / "out"), format="json"))
    batches = ((0, 1, 2, 10), (70,), (140,), (141,))
    put_in_turn(tmp_path / "in", *([event("a", second) for second in seconds] for seconds in batches))
    run_pipeline(pipeline)
    written = sorted((row["window"]["start"][14:19], row["count"]) for row in written_to(tmp_path / "out"))
    assert written[0] == ("00:00", 3)


def test_state_of_ones_own(tmp_path: Path, run_pipeline: Run, spark: SparkSession) -> None:
    put(tmp_path / "in", "1.json", event("a", 1, 2), event("b", 2, 3))

    class Running(StatefulProcessor):
        """The sum of each user's numbers so far."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._sum = handle.getValueState("sum", "total long")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            before = self._sum.get()[0] if self._sum.exists() else 0
            total = before + sum(row.n for row in rows)
            self._sum.update((total,))
            yield Row(user=key[0], total=total)

        def close(self) -> None:
            """Nothing to let go of."""

    pipeline = mr.Pipeline("stateful")
    pipeline.source("events", mr.files(str(tmp_path / "in"), schema=SCHEMA))

    @pipeline.table
    def totals(events: Any) -> Any:
        return events.groupBy("user").transformWithState(
            Running(), outputStructType="user string, total long", outputMode="update", timeMode="none"
        )

    pipeline.sink("totals", mr.files(str(tmp_path / "out"), format="json"), mode="append")
    provider = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        run_pipeline(pipeline, state=tmp_path / "state")
        put(tmp_path / "in", "2.json", event("a", 3, 5))
        run_pipeline(pipeline, state=tmp_path / "state")
    finally:
        spark.conf.unset(provider)
    written = written_to(tmp_path / "out")
    assert sorted((row["user"], row["total"]) for row in written) == [("a", 2), ("a", 7), ("b", 3)]
