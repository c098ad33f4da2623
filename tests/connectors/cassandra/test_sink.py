"""Rows into a real Cassandra: exactly those, however often and in whatever order batches are written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from millrace.clients.cassandra import Cassandra
from millrace.connectors.cassandra.sink import Insertion, WriteTimestamps
from millrace.connectors.cassandra.table import TableDesign, require_table
from millrace.errors import InvalidTable, RowRefused, UnknownTable

SCHEMA = T.StructType([T.StructField("k", T.StringType()), T.StructField("n", T.LongType())])


def batch(rows: Sequence[tuple[str | None, int | None]]) -> pa.RecordBatch:
    keys, numbers = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"k": pa.array(keys, pa.string()), "n": pa.array(numbers, pa.int64())})


@pytest.fixture
def name(cassandra: Cassandra, keyspace: str) -> str:
    """A table of keys and numbers."""
    TableDesign(f"{keyspace}.t", ("k",), ()).make(cassandra, SCHEMA)
    return f"{keyspace}.t"


def insertion(cassandra: Cassandra, name: str, timestamp: int = 1_000_000, **more: Any) -> Insertion:
    table = require_table(cassandra, name)
    return Insertion(cassandra, table, {key: table.columns[key] for key in ("k", "n")}, timestamp, **more)


def rows(cassandra: Cassandra, name: str) -> dict[str, int | None]:
    return dict(cassandra.execute(f"SELECT k, n FROM {name}"))  # noqa: S608


def test_every_row_is_there(cassandra: Cassandra, name: str) -> None:
    wanted = {f"k{number}": number for number in range(2000)}
    parts = [batch(list(wanted.items())[start : start + 300]) for start in range(0, 2000, 300)]
    assert insertion(cassandra, name).insert(iter(parts)) == 2000
    assert rows(cassandra, name) == wanted


def test_of_two_rows_with_the_same_key_the_later_one_wins(cassandra: Cassandra, name: str) -> None:
    insertion(cassandra, name).insert([batch([("a", 9), ("b", 1), ("a", 3)]), batch([("b", 0)])])
    assert rows(cassandra, name) == {"a": 3, "b": 0}


def test_an_older_batch_that_comes_after_a_newer_one_changes_nothing(
    cassandra: Cassandra, name: str, tmp_path: Path
) -> None:
    times = WriteTimestamps(tmp_path / "times.json", "q")
    old, new = batch([("a", 1), ("b", 1)]), batch([("a", 2)])
    for number, written in [(0, old), (1, new), (0, old), (0, old)]:
        insertion(cassandra, name, times.of(number)).insert([written])
    assert rows(cassandra, name) == {"a": 2, "b": 1}


def test_what_is_written_now_wins_over_what_others_wrote_before(
    cassandra: Cassandra, name: str, tmp_path: Path
) -> None:
    times = WriteTimestamps(tmp_path / "times.json", "q")
    insertion(cassandra, name, times.of(0)).insert([batch([("a", 1)])])
    cassandra.execute(f"DELETE FROM {name} WHERE k = 'a'")  # noqa: S608
    insertion(cassandra, name, times.of(1)).insert([batch([("a", 2)])])
    assert rows(cassandra, name) == {"a": 2}


def test_null_keeps_what_is_there_or_erases_it(cassandra: Cassandra, name: str) -> None:
    insertion(cassandra, name, 10).insert([batch([("a", 1), ("b", 1)])])
    insertion(cassandra, name, 20).insert([batch([("a", None)])])
    assert rows(cassandra, name) == {"a": 1, "b": 1}
    insertion(cassandra, name, 30, erase=True).insert([batch([("a", None)])])
    assert rows(cassandra, name) == {"a": None, "b": 1}


def test_rows_are_forgotten_after_their_time(cassandra: Cassandra, name: str) -> None:
    insertion(cassandra, name, ttl=3600).insert([batch([("a", 1)])])
    ((left,),) = cassandra.execute(f"SELECT TTL(n) FROM {name}")  # noqa: S608
    assert 3000 < left <= 3600


def test_a_row_without_its_key_is_refused(cassandra: Cassandra, name: str) -> None:
    with pytest.raises(RowRefused):
        insertion(cassandra, name).insert([batch([("a", 1), (None, 2)])])


def test_a_table_that_is_dropped_meanwhile_is_told(cassandra: Cassandra, name: str) -> None:
    work = insertion(cassandra, name)
    cassandra.execute(f"DROP TABLE {name}")
    with pytest.raises(UnknownTable):
        work.insert([batch([("a", 1)])])


def test_rows_larger_than_a_batch_go_alone(cassandra: Cassandra, keyspace: str) -> None:
    schema = T.StructType([T.StructField("k", T.StringType()), T.StructField("v", T.StringType())])
    table = TableDesign(f"{keyspace}.large", ("k",), ()).make(cassandra, schema)
    large = pa.RecordBatch.from_pydict({"k": [f"k{n}" for n in range(50)], "v": ["x" * 100_000] * 50})
    assert Insertion(cassandra, table, table.columns, 1).insert([large]) == 50
    ((count,),) = cassandra.execute(f"SELECT count(*) FROM {keyspace}.large")  # noqa: S608
    assert count == 50


VALUES: list[tuple[str, T.DataType, pa.DataType, Any, Any]] = [
    ("text", T.StringType(), pa.string(), "ключ", "ключ"),
    ("uuid", T.StringType(), pa.string(), str(UUID(int=7)), UUID(int=7)),
    ("inet", T.StringType(), pa.string(), "10.1.2.3", "10.1.2.3"),
    ("boolean", T.BooleanType(), pa.bool_(), True, True),
    ("tinyint", T.ByteType(), pa.int8(), -128, -128),
    ("smallint", T.ShortType(), pa.int16(), 32767, 32767),
    ("int", T.IntegerType(), pa.int32(), -(2**31), -(2**31)),
    ("bigint", T.LongType(), pa.int64(), 2**63 - 1, 2**63 - 1),
    ("varint", T.LongType(), pa.int64(), 2**63 - 1, 2**63 - 1),
    ("float", T.FloatType(), pa.float32(), 0.5, 0.5),
    ("double", T.DoubleType(), pa.float64(), 1e300, 1e300),
    ("decimal", T.DecimalType(20, 3), pa.decimal128(20, 3), Decimal("12345.678"), Decimal("12345.678")),
    ("blob", T.BinaryType(), pa.binary(), b"\x00\xff", b"\x00\xff"),
    ("date", T.DateType(), pa.date32(), dt.date(1969, 12, 31), dt.date(1969, 12, 31)),
    (
        "timestamp",
        T.TimestampType(),
        pa.timestamp("us", "UTC"),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    ),
    ("list<text>", T.ArrayType(T.StringType()), pa.list_(pa.string()), ["b", "a"], ["b", "a"]),
    ("set<int>", T.ArrayType(T.IntegerType()), pa.list_(pa.int32()), [2, 1, 2], [1, 2]),
    (
        "map<text, frozen<list<int>>>",
        T.MapType(T.StringType(), T.ArrayType(T.IntegerType())),
        pa.map_(pa.string(), pa.list_(pa.int32())),
        [("a", [1]), ("b", [])],
        {"a": [1], "b": []},
    ),
]


def test_every_type_arrives_whole(cassandra: Cassandra, keyspace: str) -> None:
    names = [f"c{number}" for number in range(len(VALUES))]
    columns = ", ".join(f"{name} {cql}" for name, (cql, *_) in zip(names, VALUES, strict=True))
    cassandra.execute(f"CREATE TABLE {keyspace}.all_types (k text PRIMARY KEY, {columns})")
    table = require_table(cassandra, f"{keyspace}.all_types")
    fields = [T.StructField(name, kind) for name, (_, kind, *_) in zip(names, VALUES, strict=True)]
    kinds = table.require(T.StructType([T.StructField("k", T.StringType()), *fields]))
    arrays = {"k": pa.array(["there", "absent"])} | {
        name: pa.array([value, None], arrow) for name, (_, _, arrow, value, _) in zip(names, VALUES, strict=True)
    }
    Insertion(cassandra, table, kinds, 1).insert([pa.RecordBatch.from_pydict(arrays)])
    chosen = ", ".join(names)
    (found,) = cassandra.execute(f"SELECT {chosen} FROM {keyspace}.all_types WHERE k = 'there'")  # noqa: S608
    assert [_plain(one) for one in found] == [expected for *_, expected in VALUES]
    (absent,) = cassandra.execute(f"SELECT {chosen} FROM {keyspace}.all_types WHERE k = 'absent'")  # noqa: S608
    assert not any(absent)


def _plain(value: Any) -> Any:
    """A value of the driver's as Python's own."""
    if hasattr(value, "days_from_epoch"):
        return value.date()
    if type(value).__name__ in ("SortedSet", "OrderedMapSerializedKey"):
        return dict(value) if hasattr(value, "items") else list(value)
    return value


def test_a_list_that_holds_null_is_refused_by_its_name(cassandra: Cassandra, keyspace: str) -> None:
    cassandra.execute(f"CREATE TABLE {keyspace}.lists (k text PRIMARY KEY, tags list<text>)")
    table = require_table(cassandra, f"{keyspace}.lists")
    rows = pa.RecordBatch.from_pydict({"k": ["a"], "tags": pa.array([["x", None]], pa.list_(pa.string()))})
    with pytest.raises(RowRefused, match="tags"):
        Insertion(cassandra, table, table.columns, 1).insert([rows])


def test_a_table_is_made_as_it_was_asked_for(cassandra: Cassandra, keyspace: str) -> None:
    schema = T.StructType(
        [
            T.StructField("application", T.StringType()),
            T.StructField("Time", T.TimestampType()),
            T.StructField("tags", T.ArrayType(T.StringType())),
        ]
    )
    design = TableDesign(f"{keyspace}.logs", ("application",), (("time", "DESC"),))
    table = design.make(cassandra, schema)
    assert (table.partition, table.clustering) == (("application",), ("Time",))
    assert design.make(cassandra, schema) == table
    with pytest.raises(InvalidTable):
        TableDesign(f"{keyspace}.logs", ("application", "time"), ()).make(cassandra, schema)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (T.StructType([T.StructField("k", T.StringType()), T.StructField("m", T.LongType())]), "'m'"),
        (T.StructType([T.StructField("k", T.StringType()), T.StructField("n", T.StringType())]), "'n' is string"),
        (T.StructType([T.StructField("n", T.LongType())]), "needs k"),
    ],
)
def test_rows_that_do_not_fit_a_table_are_told_by_column(
    cassandra: Cassandra, name: str, schema: T.StructType, told: str
) -> None:
    with pytest.raises(InvalidTable, match=told):
        require_table(cassandra, name).require(schema)


def test_an_unknown_table_and_keyspace(cassandra: Cassandra, name: str) -> None:
    with pytest.raises(UnknownTable) as caught:
        require_table(cassandra, f"{name}s")
    assert "'t'" in str(caught.value.hint)
    with pytest.raises(UnknownTable):
        require_table(cassandra, "nowhere.t")
