"""What DStreams do batch by batch: each operation gives, on today's Spark, exactly what it always gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dstreams.stages import Stage

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark import RDD
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning")

LINES = (["to be or", "not to be"], ["that is"])


def test_one_stream(spark: SparkSession, stage: Stage) -> None:
    lines = stage.queue(*LINES)
    words = lines.flatMap(str.split)
    pairs = words.map(lambda word: (word, len(word)))
    stage.collect(
        words=words,
        filtered=words.filter(lambda word: len(word) == 2),
        parts=lines.mapPartitions(lambda part: [len(list(part))]),
        indexed=lines.mapPartitionsWithIndex(lambda number, part: [(number, len(list(part)))]),
        counted=words.count(),
        reduced=pairs.map(lambda pair: pair[1]).reduce(lambda one, other: one + other),
        values=words.countByValue(),
        by_key=pairs.reduceByKey(lambda one, other: one + other),
        combined=pairs.combineByKey(lambda one: [one], lambda some, one: [*some, one], lambda one, other: one + other),
        grouped=pairs.groupByKey().mapValues(sorted),
        flat=pairs.flatMapValues(lambda length: range(length - 1)),
        glommed=words.repartition(1).glom().map(sorted),
        placed=pairs.partitionBy(3).mapPartitionsWithIndex(lambda number, _: [number]),
        transformed=words.transform(lambda rdd: rdd.distinct()),
        timed=words.transform(lambda time, rdd: rdd.context.parallelize([time.microsecond % 200_000], 1)),
    )
    assert stage.run(2) == {
        "words": [["be", "be", "not", "or", "to", "to"], ["is", "that"]],
        "filtered": [["be", "be", "or", "to", "to"], ["is"]],
        "parts": [[1, 1], [0, 1]],
        "indexed": [[(0, 1), (1, 1)], [(0, 0), (1, 1)]],
        "counted": [[6], [2]],
        "reduced": [[13], [6]],
        "values": [[("be", 2), ("not", 1), ("or", 1), ("to", 2)], [("is", 1), ("that", 1)]],
        "by_key": [[("be", 4), ("not", 3), ("or", 2), ("to", 4)], [("is", 2), ("that", 4)]],
        "combined": [[("be", [2, 2]), ("not", [3]), ("or", [2]), ("to", [2, 2])], [("is", [2]), ("that", [4])]],
        "grouped": [[("be", [2, 2]), ("not", [3]), ("or", [2]), ("to", [2, 2])], [("is", [2]), ("that", [4])]],
        "flat": [
            [("be", 0), ("be", 0), ("not", 0), ("not", 1), ("or", 0), ("to", 0), ("to", 0)],
            [("is", 0), ("that", 0), ("that", 1), ("that", 2)],
        ],
        "glommed": [[["be", "be", "not", "or", "to", "to"]], [["is", "that"]]],
        "placed": [[0, 1, 2], [0, 1, 2]],
        "transformed": [["be", "not", "or", "to"], ["is", "that"]],
        "timed": [[0], [0]],
    }


@pytest.mark.long
def test_two_streams(spark: SparkSession, stage: Stage) -> None:
    left = stage.queue([("a", 1), ("b", 2)], [("a", 3)])
    right = stage.queue([("a", "x"), ("c", "y")], [("a", "z")])
    static = stage.sc.parallelize([("a", True)])
    stage.collect(
        union=left.union(right),
        united=stage.ssc.union(left, left),
        join=left.join(right),
        left=left.leftOuterJoin(right),
        right=left.rightOuterJoin(right),
        full=left.fullOuterJoin(right),
        cogroup=left.cogroup(right).mapValues(lambda sides: tuple(map(list, sides))),
        enriched=left.transform(lambda rdd: rdd.join(static)),
        with_other=left.transformWith(lambda one, other: one.keys().union(other.keys()), right),
        together=stage.ssc.transform([left, right], lambda rdds: rdds[0].keys().intersection(rdds[1].keys())),
    )
    assert stage.run(2) == {
        "union": [[("a", "x"), ("a", 1), ("b", 2), ("c", "y")], [("a", "z"), ("a", 3)]],
        "united": [[("a", 1), ("a", 1), ("b", 2), ("b", 2)], [("a", 3), ("a", 3)]],
        "join": [[("a", (1, "x"))], [("a", (3, "z"))]],
        "left": [[("a", (1, "x")), ("b", (2, None))], [("a", (3, "z"))]],
        "right": [[("a", (1, "x")), ("c", (None, "y"))], [("a", (3, "z"))]],
        "full": [[("a", (1, "x")), ("b", (2, None)), ("c", (None, "y"))], [("a", (3, "z"))]],
        "cogroup": [[("a", ([1], ["x"])), ("b", ([2], [])), ("c", ([], ["y"]))], [("a", ([3], ["z"]))]],
        "enriched": [[("a", (1, True))], [("a", (3, True))]],
        "with_other": [["a", "a", "b", "c"], ["a", "a"]],
        "together": [["a"], ["a"]],
    }


def test_what_is_kept_and_what_can_be_asked_for_again(spark: SparkSession, stage: Stage) -> None:
    from pyspark import StorageLevel

    ran = stage.sc.accumulator(0)
    seen: list[tuple[bool, float]] = []

    def square(number: int) -> int:
        ran.add(1)
        return number * number

    stage.ssc.remember(60)
    squares = stage.queue([1, 2, 3], [4]).map(square).persist(StorageLevel.MEMORY_ONLY)
    stage.collect(first=squares, second=squares.cache())

    def look(time: datetime, rdd: RDD[int]) -> None:
        seen.append((rdd.getStorageLevel().useMemory, time.timestamp()))

    squares.foreachRDD(look)
    stage.ssc.start()
    stage.until(lambda: len(seen) >= 2)
    again = squares.slice(seen[0][1], seen[1][1])  # type: ignore[arg-type] # PySpark cuts a datetime to seconds
    assert [sorted(rdd.collect()) for rdd in again] == [[1, 4, 9], [16]]
    stage.stop()
    assert stage.found["first"][:2] == stage.found["second"][:2] == [[1, 4, 9], [16]]
    assert ran.value == 4  # each was worked on once, though three outputs and a slice wanted it
    assert seen[0][0]
