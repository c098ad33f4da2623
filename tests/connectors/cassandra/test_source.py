"""Filters of Spark's as far as Cassandra can serve them; the rest is Spark's."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, Not

from millrace.connectors.cassandra.source import TableQuery
from millrace.connectors.cassandra.table import CassandraTable
from millrace.connectors.cassandra.types import parse_type

LOGS = CassandraTable(
    "shop.logs",
    {
        "application": parse_type("text"),
        "day": parse_type("int"),
        "time": parse_type("timestamp"),
        "message": parse_type("text"),
    },
    ("application", "day"),
    ("time",),
)
ALL = TableQuery(LOGS, ("application", "message"))
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
MILLISECONDS = int(NOON.timestamp() * 1000)


def test_without_filters_all_tokens_are_asked_for_once() -> None:
    asked = ALL.selects(4)
    assert len(asked) == 4
    assert asked[0].statement == (
        'SELECT "application", "message" FROM "shop"."logs"'
        ' WHERE token("application", "day") >= ? AND token("application", "day") <= ?'
    )
    edges = [one.values for one in asked]
    assert (edges[0][0], edges[-1][1]) == (-(2**63), 2**63 - 1)
    assert [before[1] for before in edges[:-1]] == [after[0] for after in edges[1:]]
    assert all("> ?" in one.statement for one in asked[1:])


def test_a_whole_partition_key_asks_for_that_partition_alone() -> None:
    filters = [EqualTo(("application",), "a"), EqualTo(("DAY",), 7), IsNotNull(("application",))]
    (asked,) = ALL.narrowed(filters).selects(4)
    assert asked.statement.endswith('WHERE "application" = ? AND "day" = ?')
    assert asked.values == ("a", 7)


def test_several_partitions_are_several_statements() -> None:
    asked = ALL.narrowed([In(("application",), ("a", "b")), In(("day",), (1, 2))]).selects(4)
    assert [one.values for one in asked] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_a_range_of_the_clustering_column_is_served_within_a_partition() -> None:
    key = [EqualTo(("application",), "a"), EqualTo(("day",), 7)]
    (asked,) = ALL.narrowed([*key, GreaterThan(("time",), NOON)]).selects(4)
    assert asked.statement.endswith('AND "time" > ?')
    assert asked.values == ("a", 7, MILLISECONDS)
    (whole,) = ALL.narrowed([*key, LessThan(("time",), NOON)]).selects(4)
    assert whole.statement.endswith('AND "time" < ?')
    (between,) = ALL.narrowed([*key, LessThan(("time",), NOON.replace(microsecond=500))]).selects(4)
    assert between.statement.endswith('AND "time" <= ?')  # Cassandra knows no half milliseconds


def test_what_cassandra_cannot_serve_is_left_to_spark() -> None:
    for filters in (
        [EqualTo(("application",), "a")],
        [EqualTo(("application",), "a"), EqualTo(("day",), "seven")],
        [EqualTo(("message",), "m")],
        [Not(EqualTo(("application",), "a")), EqualTo(("day",), 7)],
    ):
        assert len(ALL.narrowed(filters).selects(4)) == 4


@pytest.mark.parametrize(("kind", "value"), [("decimal", Decimal("1.500")), ("double", 0.0)])
def test_what_is_equal_to_spark_and_not_to_cassandra_is_not_asked_for(kind: str, value: object) -> None:
    """1.5 and 1.500 are two partitions, and so are both zeros: all that Spark looks for would not be found."""
    table = CassandraTable("shop.prices", {"price": parse_type(kind)}, ("price",))
    assert len(TableQuery(table, ("price",)).narrowed([EqualTo(("price",), value)]).selects(4)) == 4


@pytest.mark.parametrize("kind", ["uuid", "timeuuid"])
def test_what_cassandra_has_in_another_order_is_asked_for_by_equality_alone(kind: str) -> None:
    table = CassandraTable("shop.orders", {"shop": parse_type("int"), "id": parse_type(kind)}, ("shop",), ("id",))
    key, order = EqualTo(("shop",), 1), "5e5a1bf0-0000-1000-8000-000000000000"
    (ranged,) = TableQuery(table, ("id",)).narrowed([key, GreaterThan(("id",), order)]).selects(4)
    assert ranged.statement.endswith('WHERE "shop" = ?')
    (one,) = TableQuery(table, ("id",)).narrowed([key, EqualTo(("id",), order)]).selects(4)
    assert one.statement.endswith('AND "id" = ?')


def test_timestamps_are_asked_for_as_numbers() -> None:
    assert 'SELECT toUnixTimestamp("time") FROM' in TableQuery(LOGS, ("time",)).selects(1)[0].statement
