"""An edited pipeline against its checkpoint: what goes on exactly, and what is refused before anything is harmed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import millrace as mr
from conftest import CommandLine
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import RunContext
from millrace.engine import run as running
from millrace.engine.checkpoints.resume import ASKED, REFUSED, RESUMES, ResumeDecision, check_sinks, resume_decisions
from millrace.errors import MillraceError
from millrace.pipeline.loading import load
from millrace.pipeline.plan import make_plan
from millrace.services.process import free_port
from millrace.telemetry.channels import Channels
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]
COPIED = """\
name: {topic}
sources:
  words: {{files: {folder}/in, schema: "word string"}}
tables:
  sent: SELECT word FROM words
  kept: SELECT word FROM words
sinks:
  - {{from: sent, kafka: {topic}}}
  - {{from: kept, files: {folder}/out, format: json}}
"""
COUNTS = "SELECT word, count(*) AS n, sum(weight) AS weight FROM words GROUP BY word"


class Words:
    """A folder of words, a pipeline that counts them, and what it gave."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self._run = folder, run
        self.state = folder / "state"
        self.given: dict[str, tuple[int, int]] = {}
        self._files = 0

    def put(self, *words: str, to: str = "in") -> None:
        """One more file; every word weighs ten."""
        self._files += 1
        (self.folder / to).mkdir(exist_ok=True)
        lines = [orjson.dumps({"word": word, "weight": 10, "at": "2026-01-01T00:00:00Z"}) for word in words]
        (self.folder / to / f"{self._files}.json").write_bytes(b"\n".join(lines))

    def pipeline(self, table: str | Callable[..., Any] = COUNTS, *, sink: Any = None, **more: Any) -> mr.Pipeline:
        """The pipeline, with what a test changes about it."""
        pipeline = mr.Pipeline("words")
        schema = "word string, weight bigint, at timestamp"
        watermark = more.get("watermark", "10 seconds")
        folder = str(self.folder / more.get("source", "in"))
        pipeline.source("words", mr.files(folder, schema=schema), watermark=("at", watermark))
        if isinstance(table, str):
            pipeline.sql("counts", table)
        else:
            pipeline.table(name="counts")(table)
        pipeline.sink("counts", sink or mr.foreach(self._take, batch=True), mode=more.get("mode", "update"))
        if "panel" in more:
            pipeline.panel("counts", more["panel"])
        return pipeline

    def _take(self, frame: Any, batch: int) -> None:
        del batch
        self.given |= {row["word"]: (row["n"], row["weight"]) for row in frame.collect()}

    def run(self, pipeline: mr.Pipeline, **more: Any) -> None:
        """Until everything is done."""
        self._run(pipeline, state=self.state, **more)

    def refused(self, pipeline: mr.Pipeline) -> str:
        """The condition with which a run is refused."""
        with pytest.raises(MillraceError) as raised:
            self.run(pipeline)
        return raised.value.condition

    def verdict(self, pipeline: mr.Pipeline) -> str:
        """What is said without Spark."""
        return resume_decisions(make_plan(pipeline.model()), self.state, None)[0].verdict


@contextmanager
def without_spark() -> Iterator[None]:
    """A time in which no run gets as far as to start Spark."""

    def never(*_: Any) -> None:
        raise AssertionError("Spark would be started")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "_session", never)
        yield


@pytest.fixture
def words(tmp_path: Path, run_pipeline: Run) -> Words:
    made = Words(tmp_path, run_pipeline)
    made.put("a", "b", "a")
    return made


def test_harmless_changes_go_on_and_nothing_is_counted_twice(words: Words) -> None:
    words.run(words.pipeline())
    assert words.given == {"a": (2, 20), "b": (1, 10)}
    words.put("a", "b")
    filtered = words.pipeline(COUNTS.replace("GROUP", "WHERE word <> 'b' GROUP"))
    assert words.verdict(filtered) == RESUMES
    words.run(filtered)
    assert words.given == {"a": (3, 30), "b": (1, 10)}
    words.put("a", "c")
    words.run(words.pipeline(panel=mr.top(label="word", value="n")), channels=Channels())
    assert words.given == {"a": (4, 40), "b": (1, 10), "c": (1, 10)}
    words.put("b")
    later = words.pipeline(watermark="1 hour")
    assert words.verdict(later) == RESUMES
    words.run(later)
    assert words.given == {"a": (4, 40), "b": (2, 20), "c": (1, 10)}


def test_what_would_corrupt_the_state_is_refused_and_the_rest_goes_on(words: Words, cluster: Cluster) -> None:
    words.run(words.pipeline())
    words.put("a", to="elsewhere")
    key = COUNTS.replace("SELECT", "SELECT at,").replace("BY word", "BY word, at")
    other = COUNTS.replace("sum(weight)", "max(weight)")
    swapped = "SELECT word, sum(weight) AS weight, count(*) AS n FROM words GROUP BY word"
    stateless = "SELECT word, weight AS n, weight FROM words"
    with without_spark():
        for sql in (key, other, swapped, stateless):
            assert words.verdict(words.pipeline(sql)) == REFUSED
            assert words.refused(words.pipeline(sql)) == "checkpoint.incompatible"
        assert words.refused(words.pipeline(source="elsewhere")) == "state.mismatch"
        assert words.refused(words.pipeline(sink=mr.kafka("counts"))) == "checkpoint.incompatible"
    words.put("b")
    words.run(words.pipeline())
    assert words.given == {"a": (2, 20), "b": (2, 20)}


def test_a_panel_on_a_column_that_no_sink_reads(
    words: Words, cluster: Cluster, topic: str, spark: SparkSession
) -> None:
    sink = mr.kafka(topic, value=("word", "n"))
    words.run(words.pipeline(sink=sink))
    words.put("a")
    panel = mr.top(label="word", value="weight")
    words.run(words.pipeline(sink=sink, panel=panel), channels=Channels())
    words.put("b")
    words.run(words.pipeline(sink=sink))
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    rows = reader.option("subscribe", topic).load().collect()
    written = [orjson.loads(bytes(row["value"])) for row in rows]
    assert sorted((one["word"], one["n"]) for one in written) == [("a", 2), ("a", 3), ("b", 1), ("b", 2)]


def counted(words: Any) -> Any:
    return words.groupBy("word").agg(F.count("*").alias("n"), F.sum("weight").alias("weight"))


def counted_otherwise(words: Any) -> Any:
    # The types are the same: Spark itself would go on.
    return words.groupBy("word").agg(F.count("*").alias("n"), F.max("weight").alias("weight"))


def test_what_only_spark_can_tell(words: Words) -> None:
    words.run(words.pipeline(counted))
    assert words.verdict(words.pipeline(counted_otherwise)) == ASKED
    assert words.refused(words.pipeline(counted_otherwise)) == "checkpoint.incompatible"
    words.put("a")
    assert words.verdict(words.pipeline(COUNTS)) == ASKED
    words.run(words.pipeline(COUNTS))
    assert words.given == {"a": (3, 30), "b": (1, 10)}


def test_files_become_kafka_and_state_appears(words: Words, cluster: Cluster) -> None:
    files = mr.files(str(words.folder / "out"), format="json")
    words.run(words.pipeline("SELECT word FROM words", sink=files, mode="append"))
    gone = words.pipeline("SELECT word FROM words", sink=mr.kafka("words-out"), mode="append")
    assert words.refused(gone) == "checkpoint.incompatible"
    deduplicated = words.pipeline(lambda words: words.dropDuplicates(["word"]), sink=files, mode="append")
    assert words.refused(deduplicated) == "checkpoint.incompatible"
    words.put("d")
    words.run(words.pipeline("SELECT word, weight FROM words", sink=files, mode="append"))
    found = [orjson.loads(line) for file in (words.folder / "out").glob("*.json") for line in _lines(file)]
    assert sorted(one["word"] for one in found) == ["a", "a", "b", "d"]
    assert {"word": "d", "weight": 10} in found


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines()


def test_a_folder_of_an_older_version_goes_on(words: Words) -> None:
    words.run(words.pipeline())
    shutil.rmtree(words.state / "ran")
    words.put("a")
    assert words.verdict(words.pipeline()) == RESUMES
    words.run(words.pipeline())
    assert words.given["a"] == (3, 30)


def test_who_knows_better_may_go_on(words: Words, run_pipeline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words.run(words.pipeline())
    words.put("a")
    plain = running.RunSettings
    accept = ("counts-update",)
    monkeypatch.setattr(running, "RunSettings", lambda context, **more: plain(replace(context, accept=accept), **more))
    words.run(words.pipeline(COUNTS.replace("sum(weight)", "max(weight)")))
    assert words.given["a"] == (3, 20)


def test_a_state_folder_that_a_copy_of_it_has_left_behind(
    words: Words, run_pipeline: Run, topic: str, cluster: Cluster, millrace: CommandLine
) -> None:
    file, old = words.folder / "copied.yaml", words.folder / "old"
    file.write_text(COPIED.format(topic=topic, folder=words.folder))
    run_pipeline(file, words.state)
    shutil.copytree(words.state, old)
    assert [one.verdict for one in outlooks_of(file, old, cluster)] == [RESUMES, RESUMES]
    words.put("c")
    run_pipeline(file, words.state)
    assert [one.verdict for one in outlooks_of(file, words.state, cluster)] == [RESUMES, RESUMES]

    with without_spark(), pytest.raises(MillraceError) as raised:
        run_pipeline(file, old)
    sent, kept = outlooks_of(file, old, cluster)
    assert sent.error is not None
    assert (sent.verdict, sent.error.message, kept.verdict) == (REFUSED, raised.value.message, REFUSED)
    shown = millrace("plan", file.name, "--state", str(old), code=2).stdout
    assert f"sent  cannot resume: {raised.value.message}; the state folder is older than what was written" in shown
    assert f"kept  cannot resume: the folder {words.folder}/out holds batch 1" in shown
    assert "  try: continue with the newest state folder" in shown

    sent, kept = outlooks_of(file, old, Cluster(f"127.0.0.1:{free_port()}", timeout=1.0))
    assert (sent.verdict, sent.unasked.startswith("no broker answers"), kept.verdict) == (RESUMES, True, REFUSED)


def outlooks_of(file: Path, state: Path, cluster: Cluster) -> list[ResumeDecision]:
    """What is said without Spark, when the sinks were asked."""
    plan = make_plan(load(str(file)))
    ground = RunContext(state, lambda: cluster, pipeline=plan.pipeline.name)
    return [check_sinks(one, ground) for one in resume_decisions(plan, state, None)]
