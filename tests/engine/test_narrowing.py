"""What of a source's rows leaves Python: what Spark would keep of them, and nothing that it would not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import millrace as mr
from millrace.clients import dead
from millrace.clients.producer import Producer
from millrace.clients.records import Record
from millrace.connectors.memory import MEMORY
from millrace.engine.narrowing import Used, used

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import RunPipeline
    from millrace.clients.cluster import Cluster

COLUMNS = "name string, number int, big bigint, yes boolean, share double, at timestamp"
ROWS: list[dict[str, Any]] = [
    {"name": name, "number": number, "big": big, "yes": yes, "share": share}
    for name in (None, "", "view", "click", "ä")
    for number, big in ((None, 2**40), (0, None), (-3, 7), (7, -(2**62)))
    for yes, share in ((None, 0.5), (True, None), (False, float("nan")))
]


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stands for decoding."""
    return batches


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Rows that have gone through a function in Python."""
    return spark.createDataFrame([{**row, "at": None} for row in ROWS], COLUMNS).mapInArrow(same, COLUMNS)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("query", "columns", "where"),
    [
        (lambda rows: rows.select("name"), ("name",), ()),
        (lambda rows: rows.groupBy("name").sum("big"), ("name", "big"), ()),
        (lambda rows: rows.groupBy().count(), ("name",), ()),
        (
            lambda rows: rows.where("name = 'view'").select("big"),
            ("name", "big"),
            (("is_valid", "name"), ("equal", "name", "view")),
        ),
        (
            lambda rows: rows.where("3 > number and share > 0.1").select("yes"),
            ("number", "yes", "share"),
            (("is_valid", "number"), ("less", "number", 3)),
        ),
        (
            lambda rows: rows.withWatermark("at", "1 second").where("share > 0.1").groupBy("at").count(),
            ("share", "at"),
            (),
        ),
    ],
)
def test_what_is_used(
    rows: DataFrame, query: Callable[[DataFrame], DataFrame], columns: tuple[str, ...], where: tuple[Any, ...]
) -> None:
    assert used(query(rows), {"rows": rows}) == {"rows": Used(columns, where)}


@pytest.mark.parametrize(
    "query",
    [
        lambda rows: rows,
        lambda rows: rows.select("*").where("share > 0.1"),
        lambda rows: rows.join(rows.select("name", "big"), "name"),
    ],
)
def test_everything_is_used_or_nobody_can_tell(rows: DataFrame, query: Callable[[DataFrame], DataFrame]) -> None:
    assert used(query(rows), {"rows": rows}) == {}


def test_two_places_that_use_it_have_what_both_need(rows: DataFrame) -> None:
    both = rows.where("number > 0").select("name").unionByName(rows.where("number < 0").select("name"))
    found = used(both, {"rows": rows})
    assert found in ({}, {"rows": Used(("name", "number"))})


@pytest.mark.parametrize(
    "condition",
    [
        "name = 'view'",
        "name <> 'view'",
        "name in ('view', 'ä')",
        "name not in ('view', 'ä')",
        "name > 'click' or number = 7",
        "not (name = 'view' and number > -4)",
        "not (name in ('view') or yes)",
        "number is null",
        "number is not null and big <= 7",
        "-3 < number",
        "yes = true",
        "yes = false or number >= 0",
        "big = -4611686018427387904",
        "not (number = 0 or number is null)",
    ],
)
def test_a_condition_means_what_it_means_to_spark(rows: DataFrame, condition: str) -> None:
    kept = rows.where(condition)
    found = used(kept.select("name", "number", "big", "yes", "share"), {"rows": rows})["rows"]
    batch = pa.RecordBatch.from_pylist(
        ROWS,
        schema=pa.schema(
            [
                ("name", pa.string()),
                ("number", pa.int32()),
                ("big", pa.int64()),
                ("yes", pa.bool_()),
                ("share", pa.float64()),
            ]
        ),
    )
    assert found.where
    expected = [repr(row.asDict()) for row in kept.select("name", "number", "big", "yes", "share").collect()]
    assert [repr(row) for row in found.rows(batch).to_pylist()] == expected


@pytest.mark.parametrize("decoder", ["arrow", "spark"])
def test_a_bad_value_in_a_column_that_nobody_uses_is_a_dead_letter(
    run_pipeline: RunPipeline, cluster: Cluster, lane: str, decoder: str
) -> None:
    values = (
        b'{"id": 1, "kind": "view", "spare": 1}',
        b'{"id": 2, "kind": "click", "spare": 1}',
        b'{"id": 3, "kind": "view", "spare": "no number"}',
        b'{"id": 4, "kind": "view"}',
    )
    producer = Producer(cluster, lane)
    producer.send([Record(value, b"k") for value in values])
    producer.close()
    pipeline = mr.Pipeline("narrow")
    schema = "id bigint, kind string, spare int"
    pipeline.source("events", mr.kafka(lane, schema=schema, include=("offset", "key"), decoder=decoder))
    pipeline.sql("views", "SELECT id, `offset` FROM events WHERE kind = 'view'")
    pipeline.sink("views", mr.memory())
    run_pipeline(pipeline)
    assert MEMORY.tables()["views"].to_pylist() == [{"id": 1, "offset": 0}, {"id": 4, "offset": 3}]
    assert [found.letter.value for found in dead.in_topic(cluster, f"{lane}.dead")] == [values[2]]
