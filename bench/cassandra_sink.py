"""Rows into Cassandra by the sink on Spark, against bare loops over the driver in one process, interleaved."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cassandra.concurrent import execute_concurrent_with_args
from measure import median
from pyspark.sql import DataFrame, SparkSession

from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import RunContext
from millrace.connectors.cassandra import CassandraSink, read_table
from millrace.engine.session.session import close_session, open_session
from millrace.services.cassandra import CassandraOptions, CassandraService

ROWS = int(os.environ.get("ROWS", "100000"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
APPLICATIONS = 12
NOON = 1_777_896_000_000


def lines(spark: SparkSession) -> DataFrame:
    """Log lines of a dozen applications, about 120 bytes each, kept so that making them costs nothing."""
    made = spark.range(ROWS).selectExpr(
        f"concat('application', id % {APPLICATIONS}) AS application",
        f"timestamp_millis({NOON} + id) AS time",
        "concat('GET /products/', id, ': ok (200) after 12.5 ms') AS message",
        "'INFO' AS level",
        "12.5D AS latency",
    )
    return made.repartition(spark.sparkContext.defaultParallelism).localCheckpoint(eager=True)


def by_sink(writer: CassandraSink, frame: DataFrame, site: RunContext) -> Callable[[int], None]:
    """The sink, as a query calls it for each batch."""
    return lambda number: writer.write(frame, number, site)


def by_loop(door: Cassandra, table: str) -> Callable[[int], None]:
    """What the driver's own documentation shows: one prepared statement, many at once."""
    columns = "application, time, message, level, latency"
    prepared = door.session().prepare(f"INSERT INTO {table} ({columns}) VALUES (?, ?, ?, ?, ?)")  # noqa: S608

    def row(number: int) -> tuple[Any, ...]:
        message = f"GET /products/{number}: ok (200) after 12.5 ms"
        return f"application{number % APPLICATIONS}", NOON + number, message, "INFO", 12.5

    rows = [row(number) for number in range(ROWS)]
    return lambda _: execute_concurrent_with_args(door.session(), prepared, rows, concurrency=128)


def seconds(work: Callable[[int], object], number: int) -> float:
    """How long a round takes."""
    started = time.monotonic()
    work(number)
    return time.monotonic() - started


def no_kafka() -> Cluster:
    """Nothing here asks for one."""
    raise AssertionError


def main() -> None:
    """A round to warm up, then the rounds that count."""
    with (
        tempfile.TemporaryDirectory() as folder,
        CassandraService(Path(folder) / "ring", CassandraOptions(heap="512m")) as door,
    ):
        spark = open_session("cassandra", master=None, settings={}, log=Path(folder) / "log")
        site = RunContext(Path(folder), no_kafka, pipeline="bench", name="lines", session=spark, cassandra=lambda: door)
        frame = lines(spark)
        writer = CassandraSink(table="bench.sink", create=True, key=("application",), clustering=("time", "message"))
        loop = CassandraSink(table="bench.loop", create=True, key=("application",), clustering=("time", "message"))
        loop.write(frame.limit(1), 0, site)
        works = {"sink": by_sink(writer, frame, site), "bare loop": by_loop(door, "bench.loop")}
        took: dict[str, list[float]] = {name: [] for name in works}
        for number in range(ROUNDS + 1):
            for name, work in works.items():
                spent = seconds(work, number)
                took[name] += [spent] if number else []
                print(f"round {number}, {name}: {ROWS / spent:,.0f} rows/s", flush=True)
        ((written,),) = door.execute("SELECT count(*) FROM bench.sink")
        assert written == ROWS, written
        read = median([seconds(lambda _: read_table(spark, "bench.sink", door).count(), one) for one in range(3)])
        close_session(spark)
    rates = {name: ROWS / median(found) for name, found in took.items()}
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f} rows/s")
    print(f"the sink is at {rates['sink'] / rates['bare loop']:.2f} of the bare loop")
    print(f"read back: {ROWS / read:,.0f} rows/s")


if __name__ == "__main__":
    main()
