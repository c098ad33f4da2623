"""What a replay looks at before it touches anything, without Spark and without Kafka."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.connectors.base.api import RunContext
from millrace.engine.replay import generations
from millrace.engine.replay.generations import Generation
from millrace.engine.replay.replay import run_replay
from millrace.engine.run import RunSettings, run
from millrace.errors import InvalidReplay
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus


def nowhere() -> Any:
    raise AssertionError("nothing is asked")


def folders(tmp_path: Path) -> mr.Pipeline:
    pipeline = mr.Pipeline("folders")
    pipeline.source("numbers", mr.files(str(tmp_path / "in"), schema="n bigint"))
    pipeline.sink("numbers", mr.files(str(tmp_path / "out")))
    return pipeline


def made(done: float | None = None, **offsets: Any) -> Generation:
    begin, end = offsets.get("begin", {}), offsets.get("end", {})
    return Generation(2, ("earliest", "latest"), "code", begin, end, (), (), 0.5, done)


def test_one_that_another_process_has_finished_or_deleted_is_left_alone(tmp_path: Path) -> None:
    model, base = folders(tmp_path).model(), tmp_path / "state"
    generations.change(base, lambda now: now.with_generation(made(done=1.0)))
    settings = RunSettings(RunContext(base, nowhere))
    with pytest.raises(InvalidReplay, match="already finished"):
        run_replay(model, base, made(), settings, RunStatus(), threading.Event())
    generations.change(base, lambda now: now.without(2))
    with pytest.raises(InvalidReplay, match="no generation 2"):
        run_replay(model, base, made(), settings, RunStatus(), threading.Event())


def test_one_that_was_begun_with_another_generation_of_its_source_is_not_finished_with_nothing(tmp_path: Path) -> None:
    pipeline = mr.Pipeline("copied")
    pipeline.source("numbers", mr.kafka("numbers", format="text"))
    pipeline.sink("numbers", mr.files(str(tmp_path / "out")))
    begun = made(begin={"numbers.g2": {"0": 0}}, end={"numbers.g2": {"0": 9}})
    cluster: Any = None  # the topics are named: nobody has to be asked
    with pytest.raises(InvalidReplay, match=r"numbers\.g2") as raised:
        run_replay(
            pipeline.model(),
            tmp_path,
            begun,
            RunSettings(RunContext(tmp_path, lambda: cluster)),
            RunStatus(),
            threading.Event(),
        )
    assert "--new" in (raised.value.hint or "")


def test_a_run_begins_nothing_before_it_may(tmp_path: Path) -> None:
    def no() -> None:
        raise InvalidReplay("not now")

    with pytest.raises(InvalidReplay, match="not now"):
        run(
            make_plan(folders(tmp_path).model()),
            RunSettings(RunContext(tmp_path / "state", nowhere), on_locked=no),
            RunStatus(),
            threading.Event(),
        )
    assert not (tmp_path / "state" / "pipeline.json").exists()
