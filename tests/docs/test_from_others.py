"""docs/from-flink-sql.md and docs/from-ksql.md: each of our forms is a sound pipeline, and Spark accepts it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from docs.test_documentation import blocks
from millrace.connectors.base.registry import CONNECTORS
from millrace.engine.deep_check import deep_problems
from millrace.pipeline.checks import check
from millrace.pipeline.checks.columns import key_columns
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.loading import load, read_file
from millrace.pipeline.model import PipelineDef
from millrace.testing import PipelineTest

Begin = Callable[..., PipelineTest]

PAGES = ("docs/from-flink-sql.md", "docs/from-ksql.md")
EXPECTED_WARNINGS = {"source.unused", "state.aggregation", "state.join"}
"""A page has more sources than each of its examples; updating tables keep a row for each key."""
CONSTRUCTS = {
    PAGES[0]: "TUMBLE HOP SESSION CUMULATE PROCTIME ROW_NUMBER OVER MATCH_RECOGNIZE UNNEST CREATE SYSTEM_TIME",
    PAGES[1]: "kafka_topic PARTITION LATEST_BY_OFFSET TUMBLING HOPPING SESSION EMIT GRACE COLLECT_SET EXPLODE WITHIN",
}


def examples(page: str, folder: Path) -> Iterator[Path]:
    """Each example of a page as a file: the beginning that all share, and its own lines."""
    beginning, *others = blocks(page, "yaml")
    folder.mkdir(exist_ok=True)
    for text in blocks(page, "python"):
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
    for number, text in enumerate(others):
        file = folder / f"example{number}.yaml"
        file.write_text(beginning + text)
        yield file
    yield from (file for file in folder.glob("*.py") if "mr.Pipeline" in file.read_text())


def example(page: str, table: str, folder: Path) -> str:
    """The example that has a table."""
    return str(next(file for file in examples(page, folder) if re.search(rf"^  {table}:", file.read_text(), re.M)))


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_sound(page: str, tmp_path: Path) -> None:
    files = list(examples(page, tmp_path))
    assert len(files) > 10
    for file in files:
        model, problems = read_file(str(file))
        assert model is not None
        unexpected = [one for one in (*problems, *check(model, CONNECTORS)) if one.condition not in EXPECTED_WARNINGS]
        assert not unexpected, file.read_text()


@pytest.mark.parametrize("page", PAGES)
def test_a_key_of_changes_has_every_group(page: str, tmp_path: Path) -> None:
    for file in examples(page, tmp_path):
        model, _ = read_file(str(file))
        assert model is not None
        context = CheckContext(model, CONNECTORS)
        for sink in model.sinks:
            key = dict(sink.connection.options).get("key")
            if sink.mode == "update":
                assert set([key] if isinstance(key, str) else key or ()) >= set(key_columns(context, sink.table)), file


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_every_construct(page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text("utf-8")
    headings = " ".join(re.findall(r"^(?:## .*|.*[A-Z_]{4,}.*)$", text, re.MULTILINE))
    assert [word for word in CONSTRUCTS[page].split() if word not in headings] == []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_spark_accepts_every_example(page: str, spark: SparkSession, tmp_path: Path) -> None:
    for file in examples(page, tmp_path):
        assert deep_problems(_without_cluster(load(str(file))), spark) == [], file.read_text()


def _without_cluster(pipeline: PipelineDef) -> PipelineDef:
    """The pipeline without sinks whose tables only a running system has."""
    sinks = tuple(sink for sink in pipeline.sinks if sink.connection.connector != "cassandra")
    return PipelineDef(
        pipeline.name, pipeline.sources, pipeline.tables, sinks, pipeline.panels, functions=pipeline.functions
    )


def at(second: int) -> str:
    return f"2026-05-04T12:{second // 60:02d}:{second % 60:02d}Z"


def bid(price: float, second: int, auction: int = 1, **more: object) -> dict[str, object]:
    return {"auction": auction, "bidder": 7, "price": price, "at": at(second), **more}


@pytest.mark.long
def test_the_newest_and_the_best_rows_change_with_the_stream(millrace_test: Begin, tmp_path: Path) -> None:
    test = millrace_test(example(PAGES[0], "newest", tmp_path))
    test.give(bids=[bid(5, 10), bid(9, 30), bid(7, 20), bid(1, 5, 2)])
    test.expect("newest", [{"auction": 1, "price": 9.0}, {"auction": 2, "price": 1.0}])
    test.give(bids=[bid(2, 40), bid(3, 2, 2)])
    test.expect("newest", [{"auction": 1, "price": 2.0}, {"auction": 2, "price": 1.0}])


@pytest.mark.long
def test_the_best_of_each_window_come_when_it_is_over(millrace_test: Begin, tmp_path: Path) -> None:
    test = millrace_test(example(PAGES[0], "best", tmp_path))
    test.give(bids=[bid(1, second, auction) for auction in range(1, 6) for second in range(auction)])
    test.expect("best", [])
    test.watermark(at(120))
    test.expect("best", [{"auction": 5, "place": 1}, {"auction": 4, "place": 2}, {"auction": 3, "place": 3}])


@pytest.mark.long
def test_a_versioned_join_takes_the_rate_of_its_time(millrace_test: Begin, tmp_path: Path) -> None:
    test = millrace_test(example(PAGES[0], "converted", tmp_path))
    rates = [{"currency": "EUR", "rate": rate, "at": at(second)} for rate, second in ((1.1, 0), (1.2, 30), (1.3, 90))]
    test.give(rates=rates, bids=[bid(10, 60, currency="EUR")])
    test.watermark("2026-05-04T13:01:30Z")
    test.expect("converted", [{"price": 10.0, "rate": 1.2}])


@pytest.mark.long
def test_a_pattern_is_found_in_a_session(millrace_test: Begin, tmp_path: Path) -> None:
    test = millrace_test(example(PAGES[0], "dips", tmp_path))
    falling = [bid(price, second, 1) for second, price in enumerate((5, 3, 2, 4))]
    test.give(bids=[*falling, *(bid(price, second, 2) for second, price in enumerate((5, 3, 6, 4)))])
    test.watermark(at(1800))
    test.expect("dips", [{"auction": 1}])
