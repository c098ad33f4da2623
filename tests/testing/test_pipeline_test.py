"""A pipeline on trial, on a real Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.errors import InvalidQuery, InvalidTest, MillraceError
from millrace.testing import Different, PipelineTest, Trial, trial
from millrace.testing.spark import use_session

Begin = Callable[..., PipelineTest]


def at(second: int) -> str:
    return f"2026-05-04T12:{second // 60:02d}:{second % 60:02d}Z"


def counting(**sink: str) -> mr.Pipeline:
    """Tags, counted by the minute."""
    made = mr.Pipeline("counting")
    made.source("posts", mr.kafka("posts", schema="tag string, at timestamp"), watermark=("at", "10 seconds"))

    @made.table
    def minutes(posts):
        counted = posts.groupBy(F.window("at", "1 minute"), "tag").count()
        return counted.select(F.col("window.start").alias("minute"), "tag", "count")

    made.sink("minutes", mr.console(), **sink)
    return made


def test_rows_come_out_of_tables_step_by_step(millrace_test: Begin) -> None:
    test = millrace_test(counting(mode="update"))
    test.give(posts=[{"tag": "rain", "at": at(5)}, {"tag": "rain", "at": at(50)}])
    test.expect("minutes", [{"minute": at(0), "tag": "rain", "count": 2}])
    test.give(posts=[{"tag": "rain", "at": at(55)}, "{broken"])
    test.expect("minutes", [{"count": 3}])
    test.expect_dead("posts", [{"value": "{broken", "offset": 3}])
    test.expect("minutes", [{"count": 2}], step=0)
    test.expect("minutes", [{"count": 3}], step=None, key=["minute", "tag"])
    test.expect_dead("posts", 0, step=0)
    with pytest.raises(Different, match=r"-  7"):
        test.expect("minutes", [{"count": 7}])
    with pytest.raises(Different):
        test.expect_dead("posts", 2)


def test_the_watermark_goes_exactly_where_it_is_told(millrace_test: Begin) -> None:
    test = millrace_test(counting())
    test.give(posts=[{"tag": "rain", "at": at(5)}])
    test.expect("minutes", [])
    test.watermark("2026-05-04T12:00:59.999Z")
    test.expect("minutes", [])
    test.watermark(at(60))
    test.expect("minutes", [{"minute": at(0), "tag": "rain", "count": 1}])
    test.give(posts=[*[{"tag": "rain", "at": at(59)}] * 3, {"tag": "rain", "at": at(61)}])
    test.expect_late("minutes", 3)
    test.expect_late("minutes", 3, step=None)
    with pytest.raises(Different):
        test.expect_late("minutes", 1)


def test_two_sources_of_a_step_are_one_batch(millrace_test: Begin) -> None:
    made = mr.Pipeline("joined")
    made.source("left", mr.kafka("l", schema="id string, a timestamp"), watermark=("a", "0 seconds"))
    made.source("right", mr.kafka("r", format="text"), watermark=("timestamp", "0 seconds"))
    made.source("names", mr.files("nowhere", format="csv", schema="id string, name string"), static=True)

    @made.table
    def both(left, right, names):
        near = F.expr("right.timestamp BETWEEN a AND a + INTERVAL 1 MINUTE")
        found = left.join(right.alias("right"), (F.col("id") == F.col("value")) & near)
        return found.join(names, "id").select("id", "name")

    made.sink("both", mr.console())
    test = millrace_test(made)
    names = [{"id": "x", "name": "Xenia"}, {"id": "y", "name": "Yann"}]
    for moment in (5, 15):
        test.give(
            left=[{"id": "x", "a": at(moment)}],
            right=[{"value": "x", "timestamp": at(moment)}],
            **({"names": names} if moment == 5 else {}),
        )
        test.expect("both", [{"id": "x", "name": "Xenia"}] * (1 if moment == 5 else 2))
    with pytest.raises(InvalidTest):
        test.give(names=names)


def test_rows_that_spark_reads_itself_and_files_of_csv(millrace_test: Begin) -> None:
    made = mr.Pipeline("typed")
    made.source("ticks", mr.rate(1))
    made.source("trips", mr.files("nowhere", format="csv", separator=";", schema="id int NOT NULL, price double"))

    @made.table
    def doubled(ticks):
        return ticks.selectExpr("timestamp", "value * 2 AS value")

    made.sink("doubled", mr.console())
    made.sink("trips", mr.console())
    test = millrace_test(made)
    test.give(ticks=[{"timestamp": at(1), "value": 21}], trips=["1;2.5", "x;y", {"price": 3}])
    test.expect("doubled", [{"timestamp": at(1), "value": 42}])
    test.expect("trips", [{"id": 1, "price": 2.5}])
    test.expect_dead("trips", [{"reason": "CSV"}, {"reason": "id"}])


def test_a_batch_that_is_cut_off_gives_the_same_again_unless_chance_is_in_it(millrace_test: Begin) -> None:
    sound = millrace_test(counting(mode="update"), chaos=True)
    for seconds in ((5,), (150,), (6, 6)):
        sound.give(posts=[{"tag": "rain", "at": at(second)} for second in seconds])
    sound.expect("minutes", [{"count": 1}], step=1)
    sound.expect_late("minutes", 2)
    assert sound.unstable() == []

    made = mr.Pipeline("chance")
    made.source("posts", mr.kafka("posts", schema="tag string"))

    @made.table
    def numbered(posts):
        return posts.withColumn("number", F.rand())

    made.sink("numbered", mr.console())
    unsound = millrace_test(made, chaos=True)
    unsound.give(posts=[{"tag": "rain"}])
    unsound.expect("numbered", [{"tag": "rain"}])
    assert "batch 0" in unsound.unstable()[0]


def test_a_test_that_asks_for_nothing_is_none(spark: SparkSession) -> None:
    use_session(spark)
    with pytest.raises(InvalidTest) as raised, PipelineTest(counting()) as test:
        test.give(posts=[{"tag": "rain", "at": at(5)}])
    assert raised.value.place
    assert raised.value.place.file == __file__
    with PipelineTest(counting()):
        pass


def test_dead_letters_that_nobody_expects_fail_a_test(spark: SparkSession) -> None:
    use_session(spark)
    test = PipelineTest(counting())
    test.give(posts=[{"tag": "rain", "at": at(5)}])
    test.expect("minutes", [])
    test.expect_dead("posts", 0)
    test.give(posts=["{broken"])
    with pytest.raises(Different, match=r"\{broken"), test:
        pass
    with PipelineTest(counting()) as test:
        test.give(posts=["{broken"])
        test.expect_dead("posts", "any")


def test_a_value_of_another_type_is_told_where_spark_reads_rows_itself(millrace_test: Begin) -> None:
    made = mr.Pipeline("typed")
    made.source("ticks", mr.rate(1))
    made.sink("ticks", mr.console())
    test = millrace_test(made)
    test.give(ticks=[{"timestamp": at(1), "value": "many"}])
    with pytest.raises(MillraceError):
        test.rows("ticks")


WITH_A_MODULE = """\
from pyspark.sql import functions as F

import helpers
import millrace as mr

pipeline = mr.Pipeline("marked")
pipeline.source("lines", mr.kafka("lines", format="text"))


@pipeline.table
def marked(lines):
    return lines.select(F.udf(helpers.mark)("value").alias("value"))


pipeline.sink("marked", mr.console())
"""


def test_pipelines_of_one_process_have_their_own_modules_in_workers_too(millrace_test: Begin, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pipeline.py").write_text(WITH_A_MODULE)
        (tmp_path / name / "helpers.py").write_text(f"def mark(text):\n    return '{name} ' + text\n")
        test = millrace_test(tmp_path / name / "pipeline.py")
        test.give(lines=["a"])
        test.expect("marked", [{"value": f"{name} a"}])


def test_what_cannot_be_tried_is_told(millrace_test: Begin) -> None:
    test = millrace_test(counting())
    test.give({})
    for wrong in (lambda: test.give(post=[]), lambda: test.rows("minute"), lambda: test.rows("minutes", step=7)):
        with pytest.raises(InvalidTest):
            wrong()
    plain = mr.Pipeline("plain")
    plain.source("posts", mr.kafka("posts", schema="tag string"))
    plain.sink("posts", mr.kafka("out", key="tagg"))
    other = millrace_test(plain)
    with pytest.raises(InvalidTest):
        other.watermark(at(5))
    other.give(posts=[])
    with pytest.raises(InvalidQuery):
        other.rows("posts")


def joined(sql: str) -> mr.Pipeline:
    """Two streams."""
    made = mr.Pipeline("joined")
    for name in ("a", "b"):
        made.source(name, mr.kafka(name, schema="id int, k string, at timestamp"), watermark=("at", "10 seconds"))
    made.sql("joined", sql)
    made.sink("joined", mr.console())
    return made


def test_joins_of_streams_are_as_in_a_run(millrace_test: Begin) -> None:
    test = millrace_test(joined("SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.at = b.at AND a.k = b.k"))
    test.give(a=[{"id": 1, "at": at(5)}], b=[{"id": 2, "at": at(5)}])
    test.watermark(at(60))
    test.expect("joined", [{"id": 1, "other": None}, {"id": None, "other": 2}], step=None)
    losing = millrace_test(
        joined("SELECT x.at FROM (SELECT DISTINCT at FROM a) x LEFT SEMI JOIN (SELECT DISTINCT at FROM b) y USING (at)")
    )
    losing.give(a=[])
    with pytest.raises(MillraceError):
        losing.rows("joined")


def test_a_function_that_raises_is_told_in_one_message(millrace_test: Begin) -> None:
    made = mr.Pipeline("raising")
    made.source("posts", mr.kafka("posts", schema="tag string"))

    @made.table
    def broken(posts):
        return posts.select((F.lit(1) / (F.length("tag") - F.length("tag"))).alias("n"))

    made.sink("broken", mr.console())
    test = millrace_test(made)
    test.give(posts=[{"tag": "rain"}])
    with pytest.raises(MillraceError):
        test.rows("broken")


def test_the_old_names_work_for_one_release() -> None:
    assert Trial is trial is PipelineTest
