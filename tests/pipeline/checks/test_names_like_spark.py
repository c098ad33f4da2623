"""The columns, functions and intervals that check refuses without Spark are those that Spark refuses.

The names of the columns that a query gives are Spark's, as far as check says that it knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from millrace.pipeline.checks import check
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, connection
from millrace.pipeline.sql import tables_read

from ..conftest import CONNECTORS
from ..queries import SCHEMAS, WRITTEN, generated, misspelled

_SOURCES = tuple(SourceDef(name, connection("kafka", name, {"schema": ddl})) for name, ddl in SCHEMAS.items())
_OURS = ("column.", "function.", "interval.", "sql.", "name.unknown")
_NAMES = (
    "UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE", "UNRESOLVED_FIELD", "UNRESOLVED_USING_COLUMN_FOR_JOIN",
    "FIELD_NOT_FOUND", "AMBIGUOUS_REFERENCE", "INVALID_EXTRACT", "CANNOT_RESOLVE_STAR_EXPAND", "CANNOT_PARSE_INTERVAL",
    "INVALID_INTERVAL_FORMAT", "PARSE_SYNTAX_ERROR",
)  # fmt: skip
"""The classes of Spark's errors that are about names, functions and intervals."""

UNALIASED = (
    "CAST(price AS string), bidder::int, try_cast(channel AS int), CAST((url) AS int), CAST(bids.at AS int) FROM bids",
    "string(price), date(at), bigint(bids.bidder), decimal(auction), string(int(channel)), binary(url) FROM bids",
    "CAST(CAST(price AS int) AS string), int(CAST(price AS string)), string(price + 1), CAST(-price AS int) FROM bids",
    "tinyint(price), smallint(bidder), float(auction), double(price), boolean(price), timestamp(at) FROM bids",
    "+price, -price, ~bidder, +(bidder), CAST(+price AS int), (price), ((auction)), NOT boolean(price) FROM bids",
    "bid.price, events.bid.channel, (person).city, (bid.at), extra.k, extra['k'], parts.sku, tags[0] FROM events",
    "parts[0].sku, bid['price'], struct(kind AS k).k, max(bid).channel, map('a', bid).a.at FROM events GROUP BY ALL",
    "CAST(bid.price AS string), string(bid.price), CAST(parts[0].sku AS int), from_json(kind, 'b int').b FROM events",
    "max(struct(price, channel)).channel, max_by(struct(*), at).url, count(*), CAST(max(price) AS int) FROM bids",
    "window(at, '1 minute').start, window(at, '1 minute'), CAST(window AS string) FROM bids GROUP BY 2",
    "window.start, CAST(window.end AS date), window_time(window) FROM (SELECT window(at, '1 minute') FROM bids)",
    "CAST(session_window(at, '1 minute') AS string), session_window(at, '1 minute').end FROM bids GROUP BY ALL",
    "IDENTIFIER('price'), 1, 'a', string('b'), true, NULL, current_date, user, date '2026-01-01' FROM bids",
    "IDENTIFIER('max')(price), CAST(IDENTIFIER('bidder') AS int) FROM bids GROUP BY bidder",
    "to_date(channel), to_timestamp(channel), year(at), extract(year FROM at), CASE WHEN true THEN price END FROM bids",
    "* EXCEPT (bid.price), (SELECT 1), (SELECT max(price) AS m FROM bids) FROM events",
    "explode(tags), kind::string FROM events",
    "transform(parts, p -> p.sku), filter(parts, p -> p.amount >>> 1 > 0)[0].sku FROM events",
    "x.*, t.* FROM bids x, LATERAL (SELECT x.price, string(bidder)) t",
    "DISTINCT CAST(price AS string) FROM bids ORDER BY price",
    "TRANSFORM(price, channel) USING 'cat' AS (a, b) FROM bids",
    "price, dt FROM (SELECT CAST(price AS string), date(at) AS dt FROM bids)",
    "CAST(bid AS string) AS bid FROM events ORDER BY bid.price",
)

Compare = Callable[[str], tuple[list[str], str, list[str]]]


def pipeline(query: str) -> PipelineDef:
    try:
        reads = tables_read(query)
    except Exception:  # the rule for SQL says why
        reads = ()
    return PipelineDef("p", _SOURCES, (TableDef("t", reads, query),), (SinkDef("t", connection("console")),))


def problems(query: str) -> list[str]:
    """What check says of the names in a query, without Spark."""
    found = [problem for problem in check(pipeline(query), CONNECTORS) if problem.severity == "error"]
    return [f"{one.condition}: {one.message}" for one in found if one.condition.startswith(_OURS)]


def other_names(query: str, names: list[str]) -> list[str | None]:
    """The names that check gives the columns of a query, if they are not Spark's; None is for what is no word."""
    relation = CheckContext(pipeline(query), CONNECTORS).relation("t")
    ours = [column.name for column in relation.columns]
    spark = [name.lower() if one else None for one, name in zip(ours, names, strict=False)]
    hidden = [name for one, name in zip(ours, names, strict=False) if one is None and name.isidentifier()]
    same = len(ours) == len(names) and not hidden and [one.lower() if one else None for one in ours] == spark
    return [] if relation.open or same else ours


@pytest.fixture(scope="module")
def compare(spark: SparkSession) -> Compare:
    """What check says of a query, the class of Spark's error (empty if it takes it), and the names of the columns."""
    session = spark.newSession()
    for name, ddl in SCHEMAS.items():
        session.createDataFrame([], ddl).createOrReplaceTempView(name)

    def compare(query: str) -> tuple[list[str], str, list[str]]:
        try:
            names = session.sql(query).schema.names
        except AnalysisException as error:
            return problems(query), error.getCondition() or "unknown", []
        except PySparkException as error:
            return problems(query), error.getCondition() or "unknown", []
        return problems(query), "", names

    return compare


def difference(query: str, compare: Compare, *, sound: bool | None = None) -> str | None:
    """How check and Spark differ about a query, in words; None if they do not."""
    said, refused, names = compare(query)
    if said and not refused:
        return f"false alarm: {said}\n  {query}"
    if not refused and (other := other_names(query, names)):
        return f"other names: {other}, Spark's are {names}\n  {query}"
    if refused and not said and refused.startswith(_NAMES):
        return f"missed {refused}:\n  {query}"
    if sound is not None and sound == bool(refused):
        return f"the generator says sound={sound}, Spark says {refused or 'yes'}:\n  {query}"
    return None


def of_seeds(seeds: range, compare: Compare) -> list[str]:
    queries = [generated(seed) for seed in seeds]
    found = (difference(query, compare, sound=mistake is None) for query, mistake in queries)
    return [text for text in found if text]


def of_written(variants: int, compare: Compare) -> list[str]:
    random = Random(25)
    queries = [query for query in WRITTEN for _ in range(variants)]
    found = (difference(misspelled(query, random), compare) for query in queries)
    return [text for text in found if text]


@pytest.mark.parametrize("query", WRITTEN)
def test_what_people_write(query: str, compare: Compare) -> None:
    assert difference(query, compare, sound=True) is None


def test_names_of_columns_without_an_alias(compare: Compare) -> None:
    found = (difference(f"SELECT {listed}", compare, sound=True) for listed in UNALIASED)
    assert [text for text in found if text] == []


def test_what_people_write_with_a_mistake(compare: Compare) -> None:
    assert of_written(1, compare) == []


def test_generated_queries(compare: Compare) -> None:
    assert of_seeds(range(40), compare) == []


@pytest.mark.chaos
def test_many_generated_queries(compare: Compare) -> None:
    found = [*of_seeds(range(40, 1040), compare), *of_written(15, compare)]
    assert found == [], "\n".join(found)
