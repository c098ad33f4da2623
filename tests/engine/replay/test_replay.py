"""The retained log once more, through today's code, on a real Spark: exact in every generation, beside what runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

import millrace as mr
from conftest import committed
from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.kafka import generation_alias
from millrace.connectors.memory import MEMORY
from millrace.engine.replay import generations, switch
from millrace.engine.replay.compare import compare_generations, coverage_differences
from millrace.engine.replay.generations import Generation, choose, load
from millrace.engine.replay.progress import ReplayProgress
from millrace.engine.replay.replay import ReplayRequest, _prepare, begin_replay, run_replay, unfinished_generation
from millrace.engine.replay.selection import replayed_pipeline
from millrace.engine.replay.switch import SystemClients
from millrace.engine.run import RunSettings, run
from millrace.errors import InvalidReplay, OffsetsGone, StateMismatch
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]
HOUR = 3_600_000
OLD = 1_700_000_000_000
"""When the first records of a test were made."""


def send(cluster: Cluster, topic: str, numbers: range, at: int = OLD) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, b"%d" % number, at + number) for number in numbers])
    producer.close()


def copy(topic: str, sql: str = "SELECT value AS id, value FROM events", **source: Any) -> mr.Pipeline:
    pipeline = mr.Pipeline(f"copy-{topic}")
    waits = ("timestamp", "0 seconds") if source.pop("watermark", False) else None
    most = source.pop("max_per_batch", 100)
    pipeline.source("events", mr.kafka(topic, format="text", max_per_batch=most, **source), watermark=waits)
    pipeline.sql("copied", sql)
    pipeline.sink("copied", mr.kafka(f"{topic}-out", format="text", value="value", key="id"))
    return pipeline


TIMES_TEN = "SELECT value AS id, cast(cast(value AS bigint) * 10 AS string) AS value FROM events"


def values(cluster: Cluster, topic: str) -> Counter[int]:
    return Counter(int(one.value() or b"-1") for one in committed(cluster, topic))


class Replays:
    """Replays on the Spark of the tests, in a session of their own: beside a run, as another process would be."""

    def __init__(self, spark: SparkSession, cluster: Cluster, cassandra: Callable[[], Any]) -> None:
        self.settings = RunSettings(
            RunContext(Path(), lambda: cluster, session=spark.newSession(), notify=lambda _: None, cassandra=cassandra)
        )
        self.doors = SystemClients(lambda: cluster, cassandra)
        self.run_status = RunStatus()
        """Of the last replay."""

    def __call__(
        self,
        pipeline: mr.Pipeline,
        base: Path,
        start: str = "earliest",
        end: str = "latest",
        *,
        stop_after: int | None = None,
        **asked: Any,
    ) -> Generation:
        """Replay to the end, or stop when so many records are done."""
        made = begin_replay(pipeline.model(), base, ReplayRequest(start, end, **asked), self.settings)
        self.run_replay(pipeline, base, made, stop_after)
        return load(base).get(made.number) or made

    def run_replay(self, pipeline: mr.Pipeline, base: Path, made: Generation, stop_after: int | None = None) -> bool:
        """Go on with a generation."""
        stop, over = threading.Event(), threading.Event()
        self.run_status = RunStatus()

        def watch(distance: ReplayProgress) -> None:
            while not over.wait(0.01) and distance.stage().done < (stop_after or 0):
                pass
            stop.set()

        def shown(distance: ReplayProgress) -> None:
            if stop_after is not None:
                threading.Thread(target=watch, args=(distance,), daemon=True).start()

        try:
            return run_replay(pipeline.model(), base, made, self.settings, self.run_status, stop, shown)
        finally:
            over.set()

    def run(self, pipeline: mr.Pipeline, base: Path, number: int | None = None) -> None:
        """What `millrace run --until-caught-up` does: the current generation, or one that is named."""
        chosen = choose(pipeline.model(), base, number)
        context = replace(self.settings.context, state=chosen.state, offset_range=chosen.span)
        settings = replace(self.settings, context=context)
        run(make_plan(chosen.pipeline, once=True), settings, RunStatus(), threading.Event())


@pytest.fixture
def replays(spark: SparkSession, cluster: Cluster, request: pytest.FixtureRequest) -> Replays:
    return Replays(spark, cluster, lambda: request.getfixturevalue("cassandra"))


def test_changed_code_beside_a_run_and_the_switch_to_it(
    cluster: Cluster, topic: str, run_pipeline: Run, replays: Replays, tmp_path: Path
) -> None:
    out, base = f"{topic}-out", tmp_path / "state"
    topics.create(cluster, out, 2, configs={"retention.ms": "123456789000"})
    send(cluster, topic, range(300))
    stop = threading.Event()
    running = threading.Thread(target=run_pipeline, args=(copy(topic), base), kwargs={"until": stop.is_set})
    running.start()
    try:
        made = replays(copy(topic, TIMES_TEN), base)
        send(cluster, topic, range(300, 400))  # the running one goes on, and nobody took anything from it
        while len(values(cluster, out)) < 400 and running.is_alive():
            pass
    finally:
        stop.set()
        running.join()
    assert values(cluster, out) == Counter(range(400))
    assert values(cluster, f"{out}.g2") == Counter(10 * number for number in range(300))
    (copied,) = topics.describe(cluster, [f"{out}.g2"])
    assert (len(copied.partitions), copied.configs) == (2, {"retention.ms": "123456789000"})
    assert made.done
    assert generation_alias.current_topic(cluster, out) == out

    after = switch.switch(base, f"copy-{topic}", 2, replays.doors)
    assert (after.current, after.before) == (2, 1)
    assert generation_alias.current_topic(cluster, out) == f"{out}.g2"
    send(cluster, topic, range(400, 450))
    replays.run(copy(topic, TIMES_TEN), base)  # from where the replay ended, with what came since
    assert values(cluster, f"{out}.g2") == Counter(10 * number for number in range(450))
    assert values(cluster, out) == Counter(range(400))

    switch.rollback(base, f"copy-{topic}", replays.doors)
    assert generation_alias.current_topic(cluster, out) == out
    replays.run(copy(topic), base)
    assert values(cluster, out) == Counter(range(450))

    with pytest.raises(InvalidReplay):
        switch.drop(base, f"copy-{topic}", 1, replays.doors)
    switch.drop(base, f"copy-{topic}", 2, replays.doors)
    assert f"{out}.g2" not in cluster.connect().topics
    assert not (tmp_path / "state@2").exists()
    assert not [name for name in consumer_groups.names(cluster) if f"copy-{topic}@2" in name]


@pytest.mark.long
def test_a_replay_to_a_time_goes_on_there_with_its_state(
    cluster: Cluster, topic: str, replays: Replays, tmp_path: Path
) -> None:
    """Counts are state: what is read beyond the end, and left out, must not be in them, and must be counted later."""
    send(cluster, topic, range(90))
    send(cluster, topic, range(90, 150), OLD + HOUR)
    counting = mr.Pipeline(f"count-{topic}")
    counting.source("events", mr.kafka(topic, format="text", max_per_batch=40))
    counting.sql("counts", "SELECT cast(value AS bigint) % 7 AS n, count(*) AS many FROM events GROUP BY 1")
    counting.sink("counts", mr.kafka(f"{topic}-out", key="n", value="many", format="text"), mode="update")
    topics.create(cluster, f"{topic}-out", 2, configs={"retention.ms": "123456789000"})
    end = f"{OLD + HOUR}"
    made = replays(counting, tmp_path, "earliest", end)
    assert sum(sum(numbers.values()) for numbers in made.end.values()) == 90
    assert newest(cluster, f"{topic}-out.g2") == counted(range(90))
    assert replays.run_status.summary().startswith("90 rows in ")
    switch.switch(tmp_path, f"count-{topic}", 2, replays.doors)
    replays.run(counting, tmp_path)
    assert newest(cluster, f"{topic}-out.g2") == counted(range(150))

    switch.drop(tmp_path, f"count-{topic}", 1, replays.doors)
    third = begin_replay(counting.model(), tmp_path, ReplayRequest("earliest"), replays.settings)
    _prepare(counting.model(), replayed_pipeline(counting.model(), 3, ()), third, 2, replays.settings)
    (like,) = topics.describe(cluster, [f"{topic}-out.g3"])  # as the one that counts, where the first is gone
    assert (len(like.partitions), like.configs) == (2, {"retention.ms": "123456789000"})


def newest(cluster: Cluster, topic: str) -> dict[int, int]:
    return {int(one.key() or b""): int(one.value() or b"") for one in committed(cluster, topic)}


def counted(numbers: range) -> dict[int, int]:
    return dict(Counter(number % 7 for number in numbers))


@pytest.mark.long
def test_a_replay_that_was_stopped_goes_on_and_writes_nothing_twice(
    cluster: Cluster, topic: str, replays: Replays, tmp_path: Path
) -> None:
    send(cluster, topic, range(3000))
    pipeline = copy(topic, max_per_batch=60)
    made = replays(pipeline, tmp_path, stop_after=1)
    assert made.done is None
    first = values(cluster, f"{topic}-out.g2")
    assert 0 < len(first) < 3000
    with pytest.raises(InvalidReplay, match="not finished"):
        choose(pipeline.model(), tmp_path, 2)
    with pytest.raises(InvalidReplay, match="not finished"):
        switch.switch(tmp_path, f"copy-{topic}", 2, replays.doors)
    with pytest.raises(InvalidReplay, match="has another range"):
        replays(pipeline, tmp_path, "1h ago")
    with pytest.raises(InvalidReplay, match="changed"):
        unfinished_generation(copy(topic, TIMES_TEN, max_per_batch=60).model(), tmp_path)
    send(cluster, topic, range(3000, 3100))  # after its end, which was fixed when it began
    again = replays(pipeline, tmp_path)
    assert again.number == made.number
    assert again.done
    assert values(cluster, f"{topic}-out.g2") == Counter(range(3000))


@pytest.mark.long
def test_a_comparison_finds_exactly_what_differs(
    cluster: Cluster, topic: str, replays: Replays, tmp_path: Path
) -> None:
    send(cluster, topic, range(50))
    replays.run(windowed(topic, copy(topic, watermark=True)), tmp_path)
    changed = windowed(
        topic,
        copy(
            topic,
            "SELECT value AS id, if(value IN ('7', '8'), 'x', value) AS value FROM events WHERE value <> '9'",
            watermark=True,
        ),
    )
    replays(changed, tmp_path)
    found, windows = compared(changed, tmp_path, replays)
    assert windows.same  # closed by the batch after the last one that read something
    assert values(cluster, f"{topic}-windows.g2") == Counter({10: 4})
    assert (found.old, found.new) == ((50, 50), (49, 49))
    assert {one.key for one in found.sample} == {"7", "8", "9"}
    assert not found.same
    assert not coverage_differences(changed.model(), tmp_path, (1, 2))
    send(cluster, topic, range(50, 60))
    replays.run(windowed(topic, copy(topic, watermark=True)), tmp_path)
    reach = coverage_differences(changed.model(), tmp_path, (1, 2))
    assert sum(one.old - one.new for one in reach) == 2 * 10


def windowed(topic: str, pipeline: mr.Pipeline) -> mr.Pipeline:
    """With windows of ten records each, written when they are closed."""
    pipeline.sql("windows", "SELECT count(*) AS n FROM events GROUP BY window(timestamp, '10 milliseconds')")
    pipeline.sink("windows", mr.kafka(f"{topic}-windows", format="text", value="n"))
    return pipeline


def compared(pipeline: mr.Pipeline, base: Path, replays: Replays) -> list[Any]:
    session = replays.settings.context.session
    assert session is not None
    return list(compare_generations(pipeline.model(), (1, 2), (), replays.settings.context, lambda: session))


@pytest.mark.chaos
def test_files_have_generations_and_a_link_to_the_one_that_counts(
    replays: Replays, tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("".join(f'{{"n": {number}}}\n' for number in range(20)))

    def written(sql: str) -> mr.Pipeline:
        pipeline = mr.Pipeline("folders")
        pipeline.source("numbers", mr.files(str(tmp_path / "in"), schema="n bigint"))
        pipeline.sql("kept", sql)
        pipeline.sink("kept", mr.files(str(tmp_path / "out")))
        pipeline.sink("kept", mr.console())
        return pipeline

    def rows(folder: str) -> list[int]:
        return sorted(row.n for row in spark.read.parquet(str((tmp_path / folder).resolve())).collect())

    base = tmp_path / "state"
    replays.run(written("SELECT n FROM numbers"), base)
    even = written("SELECT n FROM numbers WHERE n % 2 = 0")
    replays(even, base)
    assert rows("out") == list(range(20))
    assert rows("out.g2") == list(range(0, 20, 2))
    (found,) = compared(even, base, replays)
    assert (found.only_old, found.only_new, found.differing) == (10, 0, 0)
    switch.switch(base, "folders", 2, replays.doors)
    assert (tmp_path / "out.current").readlink() == Path("out.g2")
    (tmp_path / "in" / "2.json").write_text('{"n": 20}\n{"n": 21}\n')
    replays.run(even, base)
    assert rows("out.current") == list(range(0, 22, 2))
    report = mr.Pipeline("report")
    report.source("kept", mr.files(str(tmp_path / "out.current"), format="parquet", schema="n bigint"))
    report.sink("kept", mr.memory())
    replays.run(report, tmp_path / "report")
    assert MEMORY.table("kept").num_rows == 11
    switch.rollback(base, "folders", replays.doors)
    assert rows("out.current") == list(range(20))
    (tmp_path / "out.g3").mkdir()
    for numbers, figures in (((1, 3), (20, 0)), ((4, 1), (0, 20)), ((3, 4), (0, 0))):  # an empty folder, and none
        (found,) = compare_generations(even.model(), numbers, (), replays.settings.context, lambda: spark)
        assert (found.only_old, found.only_new) == figures


@pytest.mark.chaos
def test_dead_letters_of_a_replay_lie_apart(cluster: Cluster, topic: str, replays: Replays, tmp_path: Path) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"n": 1}'), Record(b"no"), Record(b'{"n": 2}')])
    producer.close()
    pipeline = mr.Pipeline(f"dead-{topic}")
    pipeline.source("events", mr.kafka(topic, schema="n bigint"))
    pipeline.sink("events", mr.kafka(f"{topic}-out"))
    replays.run(pipeline, tmp_path)
    replays(pipeline, tmp_path)
    assert len(committed(cluster, f"{topic}.dead")) == 1
    (letter,) = committed(cluster, f"{topic}.g2.dead")
    assert ("millrace.pipeline", f"dead-{topic}@2".encode()) in (letter.headers() or [])
    producer = Producer(cluster, topic)
    producer.send([Record(b"nor this")])
    producer.close()
    switch.switch(tmp_path, pipeline.model().name, 2, replays.doors)
    replays.run(pipeline, tmp_path)
    assert len(committed(cluster, f"{topic}.dead")) == 2
    assert len(committed(cluster, f"{topic}.g2.dead")) == 1
    assert len(committed(cluster, f"{topic}-out.g2")) == 2


@pytest.mark.long
def test_what_retention_has_removed_is_told(cluster: Cluster, topic: str, replays: Replays, tmp_path: Path) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, None, OLD + number, (), 0) for number in range(20)])
    producer.close()
    deleted = cluster.admin().delete_records([TopicPartition(topic, 0, 8)])
    next(iter(deleted.values())).result()
    for start in (f"{topic}[0]@5", "2001-01-01T00:00:00Z"):
        with pytest.raises(OffsetsGone, match=r"\[0\].*(offsets 5 to 7|starts at offset 8)"):
            replays(copy(topic), tmp_path, start)
    for start, end in (("2130-01-01T00:00:00Z", "latest"), ("1h ago", "2h ago"), (f"{topic}[0]@9", f"{topic}[0]@9")):
        with pytest.raises(InvalidReplay, match="there is no record between"):
            replays(copy(topic), tmp_path, start, end)
    assert not generations.load(tmp_path).made
    even = "SELECT value AS id, value FROM events WHERE value % 2 = 0"
    pipeline = copy(topic, f"{even} UNION ALL {even.replace('= 0', '= 1')}")
    topics.create(cluster, f"{topic}-alarms", 1)
    send(cluster, f"{topic}-alarms", range(3))
    pipeline.source("alarms", mr.kafka(f"{topic}-alarms", format="text"))
    pipeline.sink("alarms", mr.foreach(print))
    made = replays(pipeline, tmp_path, f"{topic}[0]@10", f"{topic}[0]@15", leave_out=("foreach",))
    assert made.done
    assert made.end[f"{topic}-alarms"] == {"0": 3}  # where a run gives it to foreach, not from the beginning
    assert f"{topic}-alarms" not in made.begin
    assert values(cluster, f"{topic}-out.g2") == Counter(range(10, 15))
    assert replays.run_status.summary().startswith("5 rows in ")  # which are read twice, and counted once


@pytest.mark.chaos
def test_cassandra_has_generations(
    cluster: Cluster, topic: str, replays: Replays, tmp_path: Path, keyspace: str, cassandra: Any
) -> None:
    send(cluster, topic, range(30))
    cassandra.execute(f"CREATE TABLE {keyspace}.numbers (id text PRIMARY KEY, value text) WITH comment = 'ours'")

    def written(sql: str) -> mr.Pipeline:
        pipeline = mr.Pipeline(f"tables-{topic}")
        pipeline.source("events", mr.kafka(topic, format="text"))
        pipeline.sql("copied", sql)
        pipeline.sink("copied", mr.cassandra(f"{keyspace}.numbers"))
        return pipeline

    replays.run(written("SELECT value AS id, value FROM events"), tmp_path)
    changed = written(TIMES_TEN + " WHERE value <> '3'")
    replays(changed, tmp_path)
    (found,) = compared(changed, tmp_path, replays)
    assert (found.only_old, found.only_new, found.differing) == (1, 0, 28)  # ten times 0 is 0
    switch.switch(tmp_path, f"tables-{topic}", 2, replays.doors)
    from millrace.connectors.cassandra.table import current_table

    assert current_table(cassandra, f"{keyspace}.numbers") == f"{keyspace}.numbers_g2"
    ((comment,),) = cassandra.execute(
        "SELECT comment FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'numbers_g2'", (keyspace,)
    )
    assert comment == "ours"


@pytest.mark.chaos
def test_a_source_follows_what_counts_and_does_not_resume_elsewhere(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path
) -> None:
    topics.create(cluster, f"{topic}.g2", 1)
    send(cluster, topic, range(5))
    send(cluster, f"{topic}.g2", range(50, 60))
    run_pipeline(copy(topic, current=True), tmp_path)
    generation_alias.publish(
        cluster, generation_alias.GenerationAlias(f"maker-{topic}", 2, 1.0, {topic: f"{topic}.g2"})
    )
    with pytest.raises(StateMismatch, match="cannot resume"):
        run_pipeline(copy(topic, current=True), tmp_path)
    run_pipeline(copy(topic, current=True), tmp_path / "anew")
    assert values(cluster, f"{topic}-out") == Counter([*range(5), *range(50, 60)])
