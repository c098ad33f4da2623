"""examples/nexmark: each query gives the rows that DuckDB finds in the same events, in one batch and in many."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import util
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import RunPipeline
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.registry import CONNECTORS
from millrace.connectors.memory import MEMORY
from millrace.feeds.base.api import FEEDS, Run
from millrace.pipeline.checks import check
from millrace.pipeline.loading import load
from millrace.pipeline.model import Connection, PipelineDef, SinkDef, SourceDef, connection
from millrace.pipeline.plan import make_plan
from millrace.testing import PipelineTest
from millrace.testing.compare import difference
from millrace.testing.spark import use_session

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEXMARK = EXAMPLES / "nexmark"
FILES = ("rows", "windows", "joins")
Rows = list[dict[str, Any]]

PACE = 10
PARTS = (
    # An evening: day becomes dusk.
    (datetime(2026, 5, 4, 18, 58, 40, tzinfo=UTC), 1000, 1000),
    # A night: one day becomes the next. The last windows, sessions and auctions are not over in the end.
    (datetime(2026, 5, 4, 23, 58, 30, tzinfo=UTC), 2500, 4000),
)
"""When some events begin, how many they are, and the first id."""


def _module(name: str) -> Any:
    spec = util.spec_from_file_location(f"nexmark_{name}", NEXMARK / f"{name}.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records() -> Iterator[Record]:
    """The events in the order of their arrival, with the time of it."""
    feed = FEEDS.load(str(NEXMARK / "events.py"))
    for start, count, first in PARTS:
        batches = feed(seed=7, start=start, pace=float(PACE), first=first).batches(Run())  # type: ignore[call-arg]
        part = islice((record for batch in batches for record in batch.records), count)
        for number, record in enumerate(part):
            yield record._replace(timestamp=round(1000 * (start.timestamp() + number / PACE)))


@pytest.fixture(scope="module")
def events() -> list[Record]:
    return list(records())


@pytest.fixture(scope="module")
def expected(events: list[Record]) -> dict[str, Rows]:
    """The rows of each query, by DuckDB."""
    oracle = _module("expected")
    rows: dict[str, Rows] = oracle.expected(oracle.Event(event.value, event.timestamp) for event in events)
    return rows


@pytest.fixture(autouse=True)
def from_the_top_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)


def pipeline(name: str) -> PipelineDef:
    return load(str(NEXMARK / f"{name}.yaml"))


def key(sink: SinkDef) -> tuple[str, ...]:
    """The columns of which a later row replaces an earlier one."""
    columns = dict(sink.connection.options).get("key", ())
    return () if sink.mode == "append" else (columns,) if isinstance(columns, str) else tuple(columns)


def test_every_query_is_there_and_sound(expected: dict[str, Rows]) -> None:
    queries = [sink.table for name in FILES for sink in pipeline(name).sinks]
    assert sorted(queries) == sorted(expected) == sorted(f"q{number}" for number in range(23))
    problems = [problem for name in FILES for problem in check(pipeline(name), CONNECTORS)]
    # The README says why: q18 remembers the last bid of every bidder on every auction.
    assert {(problem.severity, problem.condition) for problem in problems} <= {("warning", "state.aggregation")}


def test_the_feed_is_as_the_queries_assume(events: list[Record]) -> None:
    assert events == list(records())
    opened: dict[int, datetime] = {}
    registered: dict[int, datetime] = {}
    late_bids, behind, newest = 0, 0, datetime.min.replace(tzinfo=UTC)
    read = [orjson.loads(event.value or b"") for event in events]
    for event in sorted(read, key=lambda event: str(event["at"])):
        at = datetime.fromisoformat(event["at"])
        if person := event.get("person"):
            assert registered.setdefault(person["id"], at) is at
        if auction := event.get("auction"):
            assert opened.setdefault(auction["id"], at) is at
            assert timedelta() <= at - registered[auction["seller"]] < timedelta(minutes=1)
            ends = datetime.fromisoformat(auction["expires"])
            assert timedelta() < ends - at <= timedelta(seconds=40)
        if bid := event.get("bid"):
            assert timedelta() <= at - opened[bid["auction"]] < timedelta(minutes=1)
            assert bid["bidder"] in registered
            late_bids += at - opened[bid["auction"]] > timedelta(seconds=40)
    assert late_bids
    for event in read:
        at = datetime.fromisoformat(event["at"])
        assert newest - at < timedelta(seconds=4)
        behind += at < newest
        newest = max(newest, at)
    assert behind > len(events) / 20


def test_the_events_have_what_is_hard_about_the_queries(expected: dict[str, Rows]) -> None:
    assert all(expected.values())
    assert max(Counter(row["start"] for row in expected["q5"]).values()) > 1  # as many bids
    assert max(Counter(row["end"] for row in expected["q7"]).values()) > 1  # an equal price
    assert max(Counter(row["seller"] for row in expected["q6"]).values()) > 10  # more than are averaged
    assert {row["bid_time"] for row in expected["q14"]} == {"day", "night", "other"}
    assert {row["dir3"] is None for row in expected["q22"]} == {True, False}
    assert len(expected["q15"]) == 2  # days
    assert max(Counter(row["bidder"] for row in expected["q11"]).values()) > 1  # sessions


def test_the_expected_rows_are_printed(
    events: list[Record],
    expected: dict[str, Rows],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printed(*arguments: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["expected.py", *arguments])
        _module("expected").main()
        return capsys.readouterr().out.splitlines()

    (file := tmp_path / "events.jsonl").write_bytes(b"\n".join(event.value or b"" for event in events))
    assert len(printed(str(file), "q5")) == 11
    assert Counter(orjson.loads(line)["auction"] for line in printed(str(file), "q5", "--all")) == Counter(
        row["auction"] for row in expected["q5"]
    )
    assert len(printed(str(file), "q1", "--all")) == len(expected["q1"])  # has decimals
    with pytest.raises(SystemExit) as ended:
        printed("--help")
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("name", "batches"),
    [
        ("rows", 1),
        ("windows", 2),
        ("joins", 3),
        *(
            pytest.param(name, batches, marks=(pytest.mark.long, pytest.mark.timeout(600)))
            for name, batches in (("rows", 7), ("windows", 1), ("windows", 11), ("joins", 1), ("joins", 11))
        ),
    ],
)
def test_rows_of_every_query(
    spark: SparkSession, events: list[Record], expected: dict[str, Rows], name: str, batches: int
) -> None:
    use_session(spark)
    with PipelineTest(pipeline(name)) as test:
        for number in range(batches):
            batch = events[len(events) * number // batches : len(events) * (number + 1) // batches]
            test.give({source.name: given(source, batch) for source in test.pipeline.sources if not source.static})
        for sink in test.pipeline.sinks:
            assert_exact(sink.table, test.rows(sink.table, step=None, key=key(sink)), expected)
            assert test.late(sink.table, step=None) == 0


def given(source: SourceDef, batch: list[Record]) -> Rows:
    carried = dict(source.connection.options).get("include", ())
    return [{"value": event.value, **({"timestamp": event.timestamp} if carried else {})} for event in batch]


def assert_exact(query: str, rows: pa.Table, expected: dict[str, Rows]) -> None:
    """A query has exactly the expected rows, with all of their columns."""
    assert set(rows.column_names) == set(expected[query][0])
    assert difference(query, rows, expected[query]) is None, difference(query, rows, expected[query])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("most", [None, 500])
@pytest.mark.parametrize("name", FILES)
def test_rows_from_a_topic(
    run_pipeline: RunPipeline,
    cluster: Cluster,
    tmp_path: Path,
    events: list[Record],
    expected: dict[str, Rows],
    name: str,
    most: int | None,
) -> None:
    """The topic has three partitions, which are read together as far as event time goes."""
    topics.create(cluster, topic := f"nexmark-{uuid.uuid4().hex[:12]}", 3)
    producer = Producer(cluster, topic)
    producer.send(events)
    producer.close()
    written = moved(pipeline(name), topic, tmp_path / "q10", most)
    MEMORY.clear()
    status = run_pipeline(written)
    for query in make_plan(written).queries:
        (sink,) = query.sinks
        assert_exact(query.table, rows_of(sink), expected)
        assert status.query(query.name).late_rows == 0
        if most:
            assert status.query(query.name).batches >= len(events) // most


def moved(pipeline: PipelineDef, topic: str, folder: Path, most: int | None) -> PipelineDef:
    """The same pipeline from another topic; into memory where it writes to topics, and into another folder."""

    def read(source: SourceDef) -> SourceDef:
        if source.static:
            return source
        options = dict(source.connection.options) | ({"max_per_batch": most} if most else {})
        return replace(source, connection=connection("kafka", topic, options))

    def write(sink: SinkDef) -> Connection:
        if sink.connection.connector == "files":
            return replace(sink.connection, argument=str(folder))
        return connection("memory", sink.table, {"key": list(key(sink)) or None})

    return replace(
        pipeline,
        sources=tuple(map(read, pipeline.sources)),
        sinks=tuple(replace(sink, connection=write(sink)) for sink in pipeline.sinks),
    )


def rows_of(sink: SinkDef) -> pa.Table:
    """What a sink has written."""
    if sink.connection.connector == "files":
        return pq.read_table(sink.connection.argument)
    return MEMORY.table(sink.table)
