"""Windows and state of DStreams, over batches whose contents are known."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, sub
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dstreams.stages import BATCH, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning")


def test_windows(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    stage.keep_state(tmp_path)
    two = 2 * BATCH
    numbers = stage.queue([1], [2, 2], [3], [])
    pairs = numbers.map(lambda number: (number % 2, number))
    stage.collect(
        window=numbers.window(two),
        counted=numbers.countByWindow(two, BATCH),
        reduced=numbers.reduceByWindow(add, None, two, BATCH),
        values=numbers.countByValueAndWindow(two, BATCH),
        grouped=pairs.groupByKeyAndWindow(two, BATCH).mapValues(sorted),
        by_key=pairs.reduceByKeyAndWindow(add, None, two, BATCH),
    )
    assert stage.run(4) == {
        "window": [[1], [1, 2, 2], [2, 2, 3], [3]],
        "counted": [[1], [3], [3], [1]],
        "reduced": [[1], [5], [7], [3]],
        "values": [[(1, 1)], [(1, 1), (2, 2)], [(2, 2), (3, 1)], [(3, 1)]],
        "grouped": [[(1, [1])], [(0, [2, 2]), (1, [1])], [(0, [2, 2]), (1, [3])], [(1, [3])]],
        "by_key": [[(1, 1)], [(0, 4), (1, 1)], [(0, 4), (1, 3)], [(1, 3)]],
    }


@pytest.mark.long
def test_windows_from_which_what_leaves_is_taken_away(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    """Spark does so for windows of five slides or more; shorter ones it adds up anew."""
    stage.keep_state(tmp_path)
    taken: Any = stage.sc.accumulator(0)

    def take(one: int, other: int) -> int:
        taken.add(1)
        return one - other

    five = 5 * BATCH
    numbers = stage.queue([1], [2, 2], [3], [], [], [], [], [])
    pairs = numbers.map(lambda number: (number % 2, number))
    stage.collect(
        reduced=numbers.reduceByWindow(add, sub, five, BATCH),
        by_key=pairs.reduceByKeyAndWindow(add, take, five, BATCH),
        kept=pairs.reduceByKeyAndWindow(add, sub, five, BATCH, filterFunc=lambda pair: pair[1] != 0),
    )
    assert stage.run(8) == {
        "reduced": [[1], [5], [8], [8], [8], [7], [3], [0]],
        "by_key": [
            [(1, 1)],
            [(0, 4), (1, 1)],
            *[[(0, 4), (1, 4)]] * 3,
            [(0, 4), (1, 3)],
            [(0, 0), (1, 3)],
            [(0, 0), (1, 0)],
        ],
        "kept": [[(1, 1)], [(0, 4), (1, 1)], *[[(0, 4), (1, 4)]] * 3, [(0, 4), (1, 3)], [(1, 3)], []],
    }
    assert taken.value >= 3


def test_a_window_that_slides_by_two_batches(spark: SparkSession, stage: Stage) -> None:
    numbers = stage.queue([1], [2], [3], [4], [5], [6])
    stage.collect(window=numbers.window(3 * BATCH, 2 * BATCH))
    assert stage.run(3) == {"window": [[1, 2], [2, 3, 4], [4, 5, 6]]}


def test_windows_that_do_not_fit_the_batch_are_refused(spark: SparkSession, stage: Stage) -> None:
    numbers = stage.queue([1])
    with pytest.raises(ValueError, match="must be multiple of the parent"):
        numbers.window(1.5 * BATCH)
    with pytest.raises(ValueError, match="must be multiple of the parent"):
        numbers.window(2 * BATCH, 0.5 * BATCH)


def test_a_checkpoint_interval_that_does_not_fit_the_batch_is_refused(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    stage.keep_state(tmp_path)
    counts = stage.queue([("a", 1)]).updateStateByKey(lambda new, before: sum(new) + (before or 0))
    counts.checkpoint(1.5 * BATCH)  # type: ignore[arg-type]
    stage.collect(counts=counts)
    with pytest.raises(Exception, match="multiple of its slide time"):
        stage.ssc.start()


def test_state_by_key(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    stage.keep_state(tmp_path)

    def total(new: Iterable[int], before: int | None) -> int:
        return sum(new) + (before or 0)

    def until_five(new: Iterable[int], before: int | None) -> int | None:
        known = total(new, before)
        return None if known > 5 else known

    pairs = stage.queue([("a", 1), ("a", 2)], [("b", 4)], [("a", 3)])
    initial = stage.sc.parallelize([("b", 10), ("c", 7)])
    stage.collect(
        total=pairs.updateStateByKey(total),
        begun=pairs.updateStateByKey(total, numPartitions=3, initialRDD=initial),
        forgetful=pairs.updateStateByKey(until_five),
    )
    assert stage.run(4) == {
        "total": [[("a", 3)], [("a", 3), ("b", 4)], [("a", 6), ("b", 4)], [("a", 6), ("b", 4)]],
        "begun": [
            [("a", 3), ("b", 10), ("c", 7)],
            [("a", 3), ("b", 14), ("c", 7)],
            [("a", 6), ("b", 14), ("c", 7)],
            [("a", 6), ("b", 14), ("c", 7)],
        ],
        "forgetful": [[("a", 3)], [("a", 3), ("b", 4)], [("b", 4)], [("b", 4)]],
    }
