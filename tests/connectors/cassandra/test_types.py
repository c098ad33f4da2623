"""Types of Cassandra and Spark: which become which, and which fit."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from millrace.connectors.cassandra.types import (
    Cql,
    column_type,
    fits,
    fitting,
    has_cassandra_type,
    parse_type,
    spark_type,
)

TEXT, INT = Cql("text"), Cql("int")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("text", TEXT),
        ("frozen<list<text>>", Cql("list", (TEXT,))),
        ("map<text, frozen<set<int>>>", Cql("map", (TEXT, Cql("set", (INT,))))),
        ("vector<float, 3>", Cql("vector", (Cql("float"), Cql("3")))),
        ('frozen<"Address">', Cql('"Address"')),
    ],
)
def test_a_type_as_cassandra_tells_it(text: str, found: Cql) -> None:
    assert parse_type(text) == found


def test_collections_of_a_new_table_are_frozen() -> None:
    kind = T.MapType(T.StringType(), T.ArrayType(T.LongType()))
    assert str(column_type(kind)) == "frozen<map<text, frozen<list<bigint>>>>"
    assert parse_type(str(column_type(kind))) == column_type(kind)


def test_what_has_no_type_in_cassandra_is_not_plain() -> None:
    struct = T.StructType([T.StructField("a", T.IntegerType())])
    assert not has_cassandra_type(struct)
    assert not has_cassandra_type(T.ArrayType(struct))
    assert not has_cassandra_type(T.DayTimeIntervalType())
    assert has_cassandra_type(T.ArrayType(T.TimestampType()))


@pytest.mark.parametrize(
    ("kind", "cql", "fit"),
    [
        (T.IntegerType(), "int", True),
        (T.IntegerType(), "bigint", True),
        (T.LongType(), "int", False),
        (T.StringType(), "uuid", True),
        (T.StringType(), "int", False),
        (T.ArrayType(T.IntegerType()), "set<int>", True),
        (T.ArrayType(T.IntegerType()), "set<text>", False),
        (T.ArrayType(T.FloatType()), "vector<float, 2>", True),
        (T.MapType(T.StringType(), T.IntegerType()), "frozen<map<text, bigint>>", True),
        (T.LongType(), "counter", False),
    ],
)
def test_what_fits(kind: T.DataType, cql: str, fit: bool) -> None:
    assert fits(kind, parse_type(cql)) is fit


def test_what_fits_in_words() -> None:
    assert fitting(T.LongType()) == "bigint or varint"
    assert fitting(T.ArrayType(T.StringType())) == "frozen<list<text>>"


@pytest.mark.parametrize(
    ("cql", "ddl"),
    [("uuid", "string"), ("map<text, list<date>>", "map<string, array<date>>"), ("duration", "string")],
)
def test_what_is_read(cql: str, ddl: str) -> None:
    assert spark_type(parse_type(cql)) == ddl
