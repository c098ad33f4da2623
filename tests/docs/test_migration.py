"""docs/migrate-from-dstreams.md: the classic calls work as shown, and so do the pipelines beside them."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import RunPipeline
from docs.test_documentation import blocks
from examples.conftest import moved
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.registry import CONNECTORS
from millrace.pipeline.checks import check
from millrace.pipeline.loading import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "docs/migrate-from-dstreams.md"
LINES = ("to be or not to be", "that is the question")

pytestmark = pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning")


def pipelines(folder: Path) -> dict[str, Path]:
    """The pipelines of the page as files."""
    found = {}
    for text in (*blocks(PAGE, "python"), *blocks(PAGE, "yaml")):
        name = text.splitlines()[0].removeprefix("# ")
        if "." in name:
            found[name] = folder / name
            found[name].write_text(text)
    return found


def classic(kind: str) -> str:
    """The classic calls of the page, one after the other."""
    return "\n".join(text for text in blocks(PAGE, "python") if text.startswith(f"# {kind}\n"))


def test_every_pipeline_is_sound(tmp_path: Path) -> None:
    files = pipelines(tmp_path)
    assert len(files) == len(re.findall(r"^## ", classic_sections(), re.MULTILINE))
    for name, file in files.items():
        problems = [one for one in check(load(str(file)), CONNECTORS) if one.severity == "error"]
        assert not problems, (name, problems)


def classic_sections() -> str:
    """The part of the page that has code."""
    text = (Path(__file__).parents[2] / PAGE).read_text("utf-8")
    return text[text.index("## map, flatMap") : text.index("## What stays")]


@pytest.mark.chaos
def test_the_classic_calls_work_together(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.streaming import StreamingContext

    sc = spark.sparkContext
    ssc = StreamingContext(sc, 1)
    sc.setCheckpointDir(str(tmp_path / "checkpoint"))
    (tmp_path / "in").mkdir()
    waiting = tmp_path / "lines.txt"
    given: dict[str, Any] = {
        "sc": sc,
        "ssc": ssc,
        "lines": ssc.textFileStream(str(tmp_path / "in")),
        "folder": str(tmp_path / "in"),
        "prefix": str(tmp_path / "questions"),
        "out": str(tmp_path / "out.txt"),
        "__name__": "__main__",  # so that its functions travel to the workers whole
    }
    exec(classic("classic"), given)  # noqa: S102 - it is our own page
    printed, deadline = "", time.monotonic() + 100
    ssc.start()
    try:
        while "Time: " not in printed:  # files from before the start are none of its business
            assert time.monotonic() < deadline, printed
            ssc.awaitTerminationOrTimeout(0.1)  # type: ignore[arg-type]
            printed += capsys.readouterr().out
        waiting.write_text("".join(f"{line}\n" for line in LINES))
        waiting.rename(tmp_path / "in/lines.txt")
        # It is seen from its batch on; the last of these comes when it has left the window again.
        while printed.count("('be', 2)") < 4 or not re.search(r"^2\n(?s:.*)^0\n", printed, re.MULTILINE):
            assert time.monotonic() < deadline, printed
            ssc.awaitTerminationOrTimeout(0.1)  # type: ignore[arg-type]
            printed += capsys.readouterr().out
    finally:
        ssc.stop(stopSparkContext=False)  # what it would still make is of no interest
    for wanted in ("QUESTION", "('question', (1, 'noun'))", "('be', (1, 'verb'))"):
        assert wanted in printed
    assert sorted((tmp_path / "out.txt").read_text().splitlines())[0] == "be 2"
    saved = [part.read_text() for part in tmp_path.glob("questions-*.txt/part-*")]
    assert [text for text in saved if text] == ["that is the question\n"]


@pytest.fixture
def topic_of_lines(cluster: Cluster) -> Callable[[], str]:
    """Makes a topic with the lines."""

    def make() -> str:
        name = f"migrated-{uuid.uuid4().hex[:8]}"
        topics.create(cluster, name, 1)
        producer = Producer(cluster, name)
        producer.send([Record(line.encode()) for line in LINES])
        producer.close()
        return name

    return make


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_pipelines_give_what_the_page_says(
    run_pipeline: RunPipeline, topic_of_lines: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known").mkdir()
    (tmp_path / "known/words.csv").write_text("be,verb\nquestion,noun\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/lines.txt").write_text("".join(f"{line}\n" for line in LINES))
    printed = {}
    for name, file in pipelines(tmp_path).items():
        # Spark's own folder is another than ours.
        folders = {"kinds.yaml": ("known",), "files.yaml": ("in", "out")}.get(name, ())
        places = {one: str(tmp_path / one) for one in folders}
        places |= {} if name == "files.yaml" else {"lines": topic_of_lines()}
        run_pipeline(moved(load(str(file)), places))
        printed[name] = "\n".join(run_pipeline.printed)
    assert re.search(r"\|be *\|2 *\|", printed["counts.yaml"])
    assert re.search(r"\|be *\|2 *\|", printed["running.yaml"])
    assert len(re.findall(r"\|be *\|2 *\|", printed["windowed.yaml"])) == 5
    assert "QUESTION" in printed["kinds.yaml"]
    assert re.search(r"\|question *\|noun *\|", printed["kinds.yaml"])
    assert "0 be 2\n" in (tmp_path / "saved.txt").read_text()
    assert [part.read_text() for part in (tmp_path / "out").glob("part-*.txt")] == ["that is the question\n"]


@pytest.mark.chaos
def test_a_direct_stream_as_shown(
    spark: SparkSession, cluster: Cluster, topic_of_lines: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.streaming import StreamingContext

    from millrace.dstreams import KafkaUtils

    ssc = StreamingContext(spark.sparkContext, 1)
    topic = topic_of_lines()
    shown = classic("direct").replace('["lines"]', f'["{topic}"]')
    exec(shown, {"ssc": ssc, "KafkaUtils": KafkaUtils, "brokers": cluster.bootstrap, "__name__": "__main__"})  # noqa: S102
    ssc.start()
    printed, deadline = "", time.monotonic() + 60
    try:
        while "OffsetRange(" not in printed:
            assert time.monotonic() < deadline, printed
            ssc.awaitTerminationOrTimeout(0.1)  # type: ignore[arg-type]
            printed += capsys.readouterr().out
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert topic in printed
