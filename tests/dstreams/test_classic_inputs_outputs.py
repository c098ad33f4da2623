"""Where DStreams come from and where they go to: sockets, files and queues; text, files and functions; a tidy end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dstreams.stages import Stage
from talking import Talker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning")


def test_a_socket_and_a_graceful_stop(spark: SparkSession, stage: Stage, talker: Talker) -> None:
    words = stage.ssc.socketTextStream("127.0.0.1", talker.port).flatMap(str.split)
    stage.collect(words=words)
    stage.ssc.start()
    talker.say("to be or", "not to be")
    stage.until(lambda: len(stage.all("words")) == 6)
    talker.say("that is the question")
    # What has been received is worked on before the end, also if its batch is not due yet.
    received = stage.ssc._jssc.ssc().scheduler().receiverTracker()
    stage.until(lambda: received.hasUnallocatedBlocks() or len(stage.all("words")) == 10)
    stage.stop(gracefully=True)
    assert sorted(stage.all("words")) == sorted(["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"])


def test_files(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    folder, aside = tmp_path / "in", tmp_path / "aside"
    folder.mkdir()
    aside.mkdir()
    (folder / "before.txt").write_text("from before\n")
    other = tmp_path / "records"
    other.mkdir()
    stage.collect(
        lines=stage.ssc.textFileStream(str(folder)),
        records=stage.ssc.binaryRecordsStream(str(other), 4).map(bytes),
    )
    stage.ssc.start()
    stage.until(lambda: len(stage.found["lines"]) > 0)
    for name, text in (("1.txt", "one\nöne\n"), (".hidden", "no\n"), ("2.txt", "two\n")):
        (aside / name).write_text(text, "utf-8")
        (aside / name).rename(folder / name)
    (aside / "binary").write_bytes(b"abcd\x00\x01\x02\xff")
    (aside / "binary").rename(other / "binary")
    stage.until(lambda: len(stage.all("lines")) == 3 and len(stage.all("records")) == 2)
    stage.stop(gracefully=True)
    assert sorted(stage.all("lines")) == ["one", "two", "öne"]
    assert sorted(stage.all("records")) == [b"\x00\x01\x02\xff", b"abcd"]


def test_queues(spark: SparkSession, stage: Stage) -> None:
    batches = [stage.sc.parallelize([number]) for number in (1, 2)]
    stage.collect(
        one=stage.ssc.queueStream(batches, default=stage.sc.parallelize([9])),
        all=stage.ssc.queueStream(batches, oneAtATime=False),
        lists=stage.ssc.queueStream([[1, 2], [3]]),
    )
    assert stage.run(3) == {"one": [[1], [2], [9]], "all": [[1, 2], [], []], "lists": [[1, 2], [3], []]}


def test_text_files_and_what_is_printed(
    spark: SparkSession, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = stage.queue(list(range(4)), [7])
    numbers.pprint(num=2)
    numbers.saveAsTextFiles(str(tmp_path / "numbers"), "txt")
    stage.collect(numbers=numbers)
    stage.run(2)
    shown = re.findall(r"^-+\nTime: (\S+ \S+)\n-+\n(.*?)\n\n", capsys.readouterr().out, re.MULTILINE | re.DOTALL)
    assert [rows.splitlines() for _, rows in shown[:2]] == [["0", "1", "..."], ["7"]]
    folders = sorted(tmp_path.glob("numbers-*.txt"))
    assert len(folders) >= 2
    assert all(re.fullmatch(r"numbers-\d{13}\.txt", folder.name) for folder in folders)
    assert [sorted(lines_of(folder)) for folder in folders[:2]] == [["0", "1", "2", "3"], ["7"]]


def lines_of(folder: Path) -> list[str]:
    """The lines of all parts of an output."""
    assert (folder / "_SUCCESS").exists()
    return [line for part in folder.glob("part-*") for line in part.read_text().splitlines()]


def test_functions_get_each_batch_in_its_order(spark: SparkSession, stage: Stage) -> None:
    alone: list[list[int]] = []
    timed: list[tuple[Any, int]] = []
    sent = stage.sc.accumulator(0)

    def send(rows: Any) -> None:
        for row in rows:
            sent.add(row)

    numbers = stage.queue([1, 2], [3])
    numbers.foreachRDD(lambda rdd: alone.append(sorted(rdd.collect())))
    numbers.foreachRDD(lambda time, rdd: timed.append((time, rdd.count())))
    numbers.foreachRDD(lambda rdd: rdd.foreachPartition(send))
    stage.collect(numbers=numbers)
    stage.run(2)
    assert alone[:2] == [[1, 2], [3]]
    assert [count for _, count in timed[:2]] == [2, 1]
    assert round((timed[1][0] - timed[0][0]).total_seconds(), 3) == 0.2
    assert sent.value == 6
