"""A query that `check` and Spark take gives as a stream, however its rows are cut, what it gives as a batch.

`make chaos` compares thousands: MILLRACE_TEST_QUERIES says how many, MILLRACE_TEST_SEED which. It takes half the time
if Java compiles as it does by default: JDK_JAVA_OPTIONS=-XX:ReservedCodeCacheSize=400m
"""

# ruff: noqa: S608 - SQL is made here, from constants
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from pyspark.sql import SparkSession

from millrace.errors import InvalidDefinition

from .stateful_queries import QueryGenerator, StatefulQuery
from .stream_comparison import Difference, StreamComparison, in_groups, refusals

_GROUP = 12
"""How many queries are one stream. The plan of more takes longer than those of two streams."""
_DATA = 8
"""How many sets of rows there are."""
_QUICK_SEED, _QUICK_QUERIES = 26, 6
_NULL_KEYS_SEED = 0
"""Of rows in which both streams have one without k at the same time."""

COUNTS = "SELECT window(at, '20 seconds') AS w, k, count(*) AS n FROM a GROUP BY 1, 2"
SHARED = {
    "most": f"SELECT c.w, c.k, c.n FROM ({COUNTS}) c "
    f"JOIN (SELECT w, max(n) AS m FROM ({COUNTS}) GROUP BY w) x ON c.w = x.w AND c.n = x.m",
    "list": "SELECT w, best.k, best.n FROM (SELECT w, explode(filter(counted, c -> c.n = m)) AS best FROM "
    f"(SELECT w, max(n) AS m, collect_list(struct(k, n)) AS counted FROM ({COUNTS}) GROUP BY w))",
    "union": f"SELECT w, n, 'one' AS side FROM ({COUNTS}) UNION ALL SELECT w, n, 'other' AS side FROM ({COUNTS})",
}
"""Queries whose branches begin with the same aggregation; `list` does without a join what `most` does."""

NULL_KEYS = "SELECT x.id, y.id AS other FROM a x FULL JOIN b y ON x.at = y.at AND x.k = y.k"
SEMI = "SELECT x.* FROM (SELECT DISTINCT at, v FROM a) x LEFT SEMI JOIN b y ON x.at = y.at"
JOINED = "SELECT y.k, y.at FROM b x JOIN a y ON x.at = y.at AND x.id = y.v"
SESSIONS = (
    "SELECT w, n FROM (SELECT session_window(at, '8 seconds') AS w, count(*) AS n FROM b GROUP BY 1, k) GROUP BY w, n"
)
"""Streams that are grouped by the sessions of others; the windows of the latter overlap for different keys."""
LOSING = {
    "full": "SELECT x.id, y.id AS other FROM a x FULL JOIN b y ON x.k = y.k AND x.v = y.v AND y.at >= x.at",
    "late": "SELECT x.at, count(*) AS n FROM a x JOIN b y ON x.k = y.k AND y.at >= x.at GROUP BY x.at",
    "semi": "SELECT x.* FROM (SELECT DISTINCT at, v FROM a) x LEFT SEMI JOIN (SELECT DISTINCT at FROM b) y USING (at)",
}
"""Queries that Spark takes as streams, and that lose rows."""


@pytest.fixture(scope="module")
def comparison(spark: SparkSession) -> StreamComparison:
    """Streams and batches in a session of their own."""
    return StreamComparison(spark)


def compared(comparison: StreamComparison, seed: int, queries: int) -> tuple[int, list[Difference]]:
    """Return how many queries of a seed `check` takes, and their differences."""
    taken = [query for query in QueryGenerator(seed).queries(queries) if not refusals(query)]
    groups = enumerate(in_groups(taken, _GROUP))
    return len(taken), [found for number, group in groups for found in comparison.differences(group, number % _DATA)]


def test_branches_that_share_an_aggregation(comparison: StreamComparison) -> None:
    queries = [StatefulQuery(name, sql, "append") for name, sql in SHARED.items()]
    assert [refusals(query) for query in queries] == [[]] * len(queries)
    assert comparison.differences(queries, 1) == []
    as_batch = comparison.as_batch(queries, 1)
    assert as_batch["list"] == as_batch["most"] != Counter()


def test_what_a_reused_exchange_does_is_found(comparison: StreamComparison) -> None:
    """Only the run in three has batches without rows, for which Spark computes watermarks from the reused exchange."""
    with comparison.setting("spark.sql.exchange.reuse", "true"):
        found = comparison.differences([StatefulQuery("most", SHARED["most"], "append")], 1)
    assert [(difference.batches, difference.unexpected) for difference in found] == [(3, ())]


def test_what_loses_rows_is_refused(comparison: StreamComparison) -> None:
    queries = [StatefulQuery(name, sql, "append") for name, sql in LOSING.items()]
    conditions = {"full": ["join.unbounded"], "late": ["mode.append"], "semi": ["join.semi"]}
    assert {query.name: refusals(query) for query in queries} == conditions
    found = comparison.as_spark_takes_them(queries, 1)
    assert {difference.query.name for difference in found if difference.missing} == set(LOSING)


def test_run_refuses_it_where_check_cannot_follow_a_function(comparison: StreamComparison) -> None:
    with pytest.raises(InvalidDefinition):
        comparison.start([StatefulQuery("late", LOSING["late"], "append")], 0)


def test_keys_that_are_null_have_no_partner(comparison: StreamComparison) -> None:
    queries = [StatefulQuery("full", NULL_KEYS, "append")]
    assert comparison.differences(queries, _NULL_KEYS_SEED) == []
    assert {difference.query.name for difference in comparison.as_spark_takes_them(queries, _NULL_KEYS_SEED)} == {
        "full"
    }


@pytest.mark.parametrize("sql", [SEMI, f"{JOINED} UNION {JOINED}"], ids=["semi join", "equal branches"])
def test_a_plan_does_not_depend_on_sizes(sql: str, comparison: StreamComparison) -> None:
    queries = [StatefulQuery("q", sql, "append")]
    assert comparison.differences(queries, 1) == []
    with comparison.setting("spark.sql.optimizer.excludedRules", ""):
        assert [difference.batches for difference in comparison.differences(queries, 1)] == [0]


def test_groups_by_the_sessions_of_others_are_refused(comparison: StreamComparison) -> None:
    queries = [StatefulQuery("sessions", SESSIONS, "append")]
    with pytest.raises(InvalidDefinition):
        comparison.start(queries, 0)
    assert comparison.as_spark_takes_them(queries, 0) != []
    ends = SESSIONS.replace("SELECT w, n", "SELECT window_time(w) AS t, n", 1).replace(
        "BY w, n", "BY window_time(w), n"
    )
    assert comparison.differences([StatefulQuery("ends", ends, "append")], 0) == []


def test_generated_queries(comparison: StreamComparison) -> None:
    taken, differences = compared(comparison, _QUICK_SEED, _QUICK_QUERIES)
    assert taken >= _QUICK_QUERIES * 3 // 4
    assert differences == []


def seeds() -> Iterator[tuple[int, int]]:
    """Yield seeds with numbers of queries, 100 of each seed."""
    first, queries = (
        int(os.environ.get("MILLRACE_TEST_SEED", "1")),
        int(os.environ.get("MILLRACE_TEST_QUERIES", "1000")),
    )
    for seed, done in zip(count(first), range(0, queries, 100), strict=False):
        yield seed * 1000, min(100, queries - done)


@pytest.mark.chaos
@pytest.mark.timeout(6 * 3600)
def test_many_generated_queries(comparison: StreamComparison) -> None:
    total: Counter[str] = Counter()
    differences: list[Difference] = []
    for seed, queries in seeds():
        taken, found = compared(comparison, seed, queries)
        total.update(compared=taken, refused=queries - taken, different=len({one.query.name for one in found}))
        differences += found
        print(f"seed {seed}: {dict(total)}", *found, sep="\n", flush=True)  # noqa: T201 - it takes an hour
    assert differences == []
