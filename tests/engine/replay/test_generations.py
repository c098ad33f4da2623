"""What is noted of generations, which one counts, and how far a replay is; without Spark and without Kafka."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.cli.commands.replay.generations import print_handovers
from millrace.connectors.base.registry import CONNECTORS
from millrace.engine.checkpoints.query_history import record_start
from millrace.engine.replay import generations, switch
from millrace.engine.replay.compare import coverage_differences
from millrace.engine.replay.generations import Generation, Generations, Output, choose, pipeline_of, state_of
from millrace.engine.replay.handover import SinkHandover, handovers
from millrace.engine.replay.progress import PartitionProgress, ReplayProgress
from millrace.engine.replay.replay import ReplayRequest, require_possible
from millrace.engine.replay.selection import replayed_pipeline
from millrace.engine.replay.switch import SystemClients, alias_targets, drop, is_deletable, outputs_to_drop, rollback
from millrace.errors import FileUnusable, InvalidOption, InvalidReplay, KafkaUnreachable, StateMismatch
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import make_plan
from millrace.telemetry.progress import BatchProgress, SourceProgress


def trending(**sinks: object) -> mr.Pipeline:
    pipeline = mr.Pipeline("trending")
    pipeline.source("posts", mr.kafka("posts", format="text"))
    pipeline.sink("posts", mr.kafka("popular"))
    pipeline.sink("posts", mr.files("out/popular/"))
    pipeline.sink("posts", mr.cassandra("town.popular", create=True, key="value"))
    pipeline.sink("posts", mr.console())
    return pipeline


def made(number: int, done: float | None = 1.0) -> Generation:
    outputs = (Output("kafka", "popular", f"popular.g{number}"),)
    ends = {"posts": {"0": 10}}
    return Generation(number, ("earliest", "latest"), "code", {"posts": {"0": 0}}, ends, outputs, (), 0.5, done)


def test_a_generation_has_names_of_its_own() -> None:
    model = pipeline_of(trending().model(), 2)
    assert model.name == "trending@2"
    assert [sink.connection.argument for sink in model.sinks] == [
        "popular.g2",
        "out/popular.g2",
        "town.popular_g2",
        None,
    ]
    assert dict(model.sinks[2].connection.options)["key"] == "value"
    assert pipeline_of(trending().model(), 1) == trending().model()
    assert [sink.connection.connector for sink in replayed_pipeline(trending().model(), 2, ()).sinks] == [
        "kafka",
        "files",
        "cassandra",
    ]


def test_what_is_noted_is_read_again(tmp_path: Path) -> None:
    base = tmp_path / "trending"
    assert generations.load(base) == Generations()
    after = generations.change(base, lambda now: replace(now.with_generation(made(2)), current=2, before=1))
    assert generations.load(base) == after
    assert state_of(base, 2) == tmp_path / "trending@2"
    chosen = choose(trending().model(), base)
    assert (chosen.number, chosen.state, chosen.pipeline.name) == (2, tmp_path / "trending@2", "trending@2")
    assert chosen.span is not None
    assert chosen.span.begin == {"posts": {"0": 10}}
    assert choose(trending().model(), base, 1).state == base
    assert [(one["number"], one["current"]) for one in generations.listed(base)] == [(1, False), (2, True)]
    (tmp_path / "trending.generations.json").write_text("{")
    with pytest.raises(StateMismatch):
        generations.load(base)


def test_only_the_current_generation_gives_rows_to_sinks_that_have_one_generation(tmp_path: Path) -> None:
    pipeline = trending()
    pipeline.sink("posts", mr.foreach(print))
    pipeline.sink("posts", mr.kafka(topic_column="value"))
    base, model = tmp_path / "trending", pipeline.model()
    generations.change(base, lambda now: now.with_generation(made(2)))
    assert choose(model, base).pipeline == model
    beside = choose(model, base, 2)
    assert [sink.connection.connector for sink in beside.without] == ["foreach", "kafka"]
    kept = [sink.connection.connector for sink in beside.pipeline.sinks]
    assert kept == ["kafka", "files", "cassandra", "console"]
    generations.change(base, lambda now: replace(now, current=2, before=1))
    assert len(choose(model, base).pipeline.sinks) == 6
    assert len(choose(model, base, 1).pipeline.sinks) == 4


def has_read(base: Path, model: PipelineDef, number: int, offset: int) -> None:
    """Make it look as if the query of a generation had read so far, by a run of what the model says."""
    state, own = state_of(base, number), pipeline_of(model, number)
    (query,) = make_plan(own).queries
    record_start(state, query.name, snapshot_query(own, query, CONNECTORS), None)
    for name, content in (("offsets", f'v1\n{{}}\n{{"posts":{{"0":{offset}}}}}'), ("commits", "v1\n{}")):
        folder = state / "checkpoints" / query.name / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(len(list(folder.iterdir())))).write_text(content)


def test_what_a_sink_with_one_generation_gets_twice_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = trending()
    base, plain = tmp_path / "trending", pipeline.model()
    pipeline.sink("posts", mr.foreach(print))
    model = pipeline.model()
    (foreach,) = [sink for sink in model.sinks if sink.connection.connector == "foreach"]
    switched = generations.change(base, lambda now: replace(now.with_generation(made(2)), current=2, before=1))

    has_read(base, plain, 1, 25)  # without it
    assert handovers(model, base, 1, 2) == handovers(model, base, None, 1) == []
    has_read(base, model, 1, 25)  # the replay has ended at 10
    assert handovers(model, base, 1, 2) == [SinkHandover(foreach, repeated=("posts[0] 10 to 24",))]
    print_handovers(model, base, switched)
    assert capsys.readouterr().err == (
        "the sink foreach of 'posts' gets offsets twice: generation 1 wrote them, and 2 will: posts[0] 10 to 24\n"
    )
    has_read(base, plain, 2, 40)  # beside the first one, and further than that
    assert handovers(model, base, 1, 2) == [SinkHandover(foreach, missed=("posts[0] 25 to 39",))]
    has_read(base, model, 2, 50)
    assert handovers(model, base, 1, 2) == []
    assert handovers(model, base, 2, 1) == [SinkHandover(foreach, repeated=("posts[0] 25 to 49",))]  # after a rollback


def test_files_are_given_anew_to_a_sink_that_a_replay_has_left_out(tmp_path: Path) -> None:
    pipeline = mr.Pipeline("folders")
    pipeline.source("posts", mr.files(str(tmp_path), format="text"))
    pipeline.sink("posts", mr.foreach(print))
    base, model = tmp_path / "folders", pipeline.model()
    generations.change(base, lambda now: replace(now.with_generation(made(2)), current=2, before=1))
    has_read(base, model, 1, 25)
    assert [one.reread for one in handovers(model, base, 1, 2)] == [("posts",)]


def test_numbers_are_not_given_twice() -> None:
    known = Generations().with_generation(made(2)).with_generation(made(3))
    assert known.without(3).last == 3
    with pytest.raises(InvalidReplay):
        known.without(3).require(3)


def test_what_was_read_is_compared_also_of_queries_that_are_called_by_their_topic(tmp_path: Path) -> None:
    pipeline = mr.Pipeline("quick")
    pipeline.source("posts", mr.kafka("posts", format="text"))
    pipeline.sink("posts", mr.kafka("popular"), trigger="realtime")
    base, model = tmp_path / "quick", pipeline.model()
    for number, offset in ((1, 30), (2, 20)):
        (query,) = make_plan(pipeline_of(model, number)).queries
        folder = state_of(base, number) / "checkpoints" / query.name
        for name, content in (("offsets", f'v1\n{{}}\n{{"posts":{{"0":{offset}}}}}'), ("commits", "v1\n{}")):
            (folder / name).mkdir(parents=True)
            (folder / name / "0").write_text(content)
    (found,) = coverage_differences(model, base, (1, 2))
    assert (found.partition, found.old, found.new) == ("posts[0]", 30, 20)


def test_aliases_lead_to_what_a_generation_has() -> None:
    known = Generations().with_generation(made(2)).with_generation(made(3))
    assert alias_targets(known, 3) == [Output("kafka", "popular", "popular.g3")]
    assert alias_targets(known, 1) == [Output("kafka", "popular", "popular")]
    assert outputs_to_drop(known, 2) == [Output("kafka", "popular", "popular.g2")]


def test_a_replay_that_was_left_for_another_does_not_wait_to_go_on() -> None:
    known = Generations().with_generation(made(2, done=None))
    assert known.unfinished() == made(2, done=None)
    assert known.with_generation(made(3, done=None)).unfinished() == made(3, done=None)
    assert known.with_generation(made(3)).unfinished() is None
    assert replace(known, dropping=(2,)).unfinished() is None
    assert Generations().unfinished() is None


def closed() -> Any:
    raise KafkaUnreachable("no broker answers")


def test_a_generation_that_is_half_deleted_cannot_count_and_is_deleted_by_the_same_command(tmp_path: Path) -> None:
    base, doors = tmp_path / "trending", SystemClients(closed, closed)
    generations.change(
        base, lambda now: replace(now.with_generation(made(2)), current=2, before=1).with_generation(made(3))
    )
    generations.change(base, lambda now: now.with_generation(replace(made(3), outputs=(), end={})))
    for number in (1, 2):
        with pytest.raises(KafkaUnreachable if number == 1 else InvalidReplay):
            drop(base, "trending", number, doors)
    with pytest.raises(InvalidReplay, match="being deleted"):
        rollback(base, "trending", doors)
    with pytest.raises(InvalidReplay, match="being deleted"):
        choose(trending().model(), base, 1)
    drop(base, "trending", 3, doors)
    assert generations.load(base).dropping == (1,)
    assert [one["number"] for one in generations.listed(base)] == [1, 2]


def test_the_first_generation_is_gone_when_it_was_deleted(tmp_path: Path) -> None:
    base, doors = tmp_path / "trending", SystemClients(closed, closed)
    alone = replace(made(2), outputs=())
    generations.change(base, lambda now: replace(now.with_generation(alone), current=2, before=1))
    drop(base, "trending", 1, doors)
    assert [one["number"] for one in generations.listed(base)] == [2]
    with pytest.raises(InvalidReplay, match="no generation 1"):
        choose(trending().model(), base, 1)
    with pytest.raises(InvalidReplay, match="no generation to roll back to"):
        rollback(base, "trending", doors)


def test_what_cannot_be_deleted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, doors = tmp_path / "trending", SystemClients(closed, closed)
    here, away = (Output("files", f"{path}", f"{path}.g2") for path in (tmp_path / "out", "s3a://bucket/out"))
    generations.change(base, lambda now: now.with_generation(replace(made(2), outputs=(here, away), end={})))
    assert [is_deletable(one) for one in (here, away)] == [True, False]
    (tmp_path / "out.g2").mkdir()

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(switch.shutil, "rmtree", refuse)
        with pytest.raises(FileUnusable, match="cannot be deleted"):
            drop(base, "trending", 2, doors)
    assert generations.load(base).get(2)
    drop(base, "trending", 2, doors)
    assert not (tmp_path / "out.g2").exists()
    assert not generations.load(base).get(2)


@pytest.mark.parametrize("start", ["yesterday-ish", "posts[0]", "posts@3"])
def test_a_place_that_is_none_is_told(start: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        require_possible(trending().model(), ReplayRequest(start))
    assert "2h ago" in (raised.value.hint or "")


def from_source(source: object) -> PipelineDef:
    pipeline = mr.Pipeline("other")
    pipeline.source("lines", source)
    pipeline.sink("lines", mr.kafka("out"))
    return pipeline.model()


def test_what_keeps_nothing_cannot_be_replayed() -> None:
    for source in (mr.socket("127.0.0.1:9"), mr.rate(), mr.files("in", format="text", after="delete")):
        with pytest.raises(InvalidReplay, match="cannot be replayed"):
            require_possible(from_source(source), ReplayRequest("earliest"))


def test_a_sink_that_can_have_one_generation_only_is_refused_unless_it_is_left_out() -> None:
    pipeline = trending()
    pipeline.sink("posts", mr.foreach(print))
    with pytest.raises(InvalidReplay, match="foreach") as raised:
        require_possible(pipeline.model(), ReplayRequest("earliest"))
    assert "--leave-out foreach" in (raised.value.hint or "")
    require_possible(pipeline.model(), ReplayRequest("earliest", leave_out=("foreach",)))
    alone = mr.Pipeline("alone")
    alone.source("posts", mr.kafka("posts", format="text"))
    alone.sink("posts", mr.memory())
    with pytest.raises(InvalidReplay, match="no sink"):
        require_possible(alone.model(), ReplayRequest("earliest"))
    by_row = mr.Pipeline("by-row")
    by_row.source("posts", mr.kafka("posts", format="text"))
    by_row.sink("posts", mr.kafka(topic_column="value"))
    with pytest.raises(InvalidReplay, match="kafka"):
        require_possible(by_row.model(), ReplayRequest("earliest"))


def test_a_pipeline_that_reads_its_own_output_is_refused() -> None:
    pipeline = trending()
    pipeline.source("again", mr.kafka("popular", format="text"))
    pipeline.sink("again", mr.kafka("last"))
    with pytest.raises(InvalidReplay, match="topic popular"):
        require_possible(pipeline.model(), ReplayRequest("earliest"))


def progress(query: str, read: dict[str, dict[str, int]], rows: int = 5) -> BatchProgress:
    source = SourceProgress("kafka", rows, end=read)
    return BatchProgress(query, "run", 0, datetime.now(UTC), rows, sources=(source,))


def test_the_way_of_a_replay_ends_at_its_end_however_far_spark_reads() -> None:
    begin, end = {("posts", 0): 10, ("posts", 1): 0}, {("posts", 0): 30, ("posts", 1): 5}
    distance = ReplayProgress(
        {"one": PartitionProgress(begin, end), "two": PartitionProgress(begin, end, {("posts", 0): 30})}
    )
    assert (distance.stage().done, distance.stage().total) == (20, 50)
    distance.on_batch(progress("one", {"posts": {"0": 100, "1": 2}}))
    distance.on_batch(progress("drawing", {"posts": {"0": 100, "1": 2}}))
    stage = distance.stage()
    assert (stage.done, stage.rows) == (42, 5)
    assert stage.seconds_left is None
    assert not distance.is_finished("one")
    distance.on_batch(progress("one", {"posts": {"0": 100, "1": 200}}))
    assert distance.stage().seconds_left is not None
    assert not distance.is_finished("one")  # a watermark has its effect in the next batch
    distance.on_batch(progress("one", {"posts": {"0": 100, "1": 200}}, 0))  # nothing was run
    assert not distance.is_finished("one")
    distance.on_batch(progress("one", {"posts": {"0": 110, "1": 200}}))
    assert distance.is_finished("one")
    assert not distance.is_finished("two")
    files = ReplayProgress(
        {"files": PartitionProgress({}, {}, all_in_kafka=False), "nothing": PartitionProgress(end, end)}
    )
    assert not files.is_finished("files")
    assert [files.is_empty(name) for name in ("files", "nothing")] == [False, True]
    assert not distance.is_empty("one")
