"""`millrace demo`: every demo is a sound pipeline, runs for its time, and stops what it started."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from conftest import CommandLine
from millrace.cli.commands import demo as command
from millrace.cli.commands.check import load_sound
from millrace.cli.commands.demo.catalog import DEMOS, Demo
from millrace.cli.commands.demo.startup_progress import StartupProgress
from millrace.cli.main import app
from millrace.clients.kafka.cluster import Cluster
from millrace.engine.session import session
from millrace.errors import MillraceError
from millrace.feeds.base.api import FEEDS
from millrace.pipeline.plan import make_plan
from millrace.services import kafka
from millrace.telemetry.channels import Channels
from millrace.telemetry.query_status import RunStatus

if TYPE_CHECKING:
    from millrace.dashboard.run_page import RunPage


@pytest.mark.parametrize("demo", DEMOS.values(), ids=lambda demo: demo.name)
def test_every_demo_is_a_sound_pipeline_over_its_feeds(demo: Demo) -> None:
    pipeline = load_sound(str(demo.file))
    assert pipeline.name == demo.name
    assert {source.connection.argument for source in pipeline.sources} == set(demo.topics)
    assert pipeline.panels
    assert {one.feed for one in demo.feeds} <= set(FEEDS.names())
    assert f"millrace run {demo.file.name}" in demo.file.read_text("utf-8")


def test_the_list_and_the_file_to_copy(offline_millrace: CommandLine) -> None:
    listed = offline_millrace("demo", "--list").stdout
    assert all(name in listed for name in DEMOS)
    shown = offline_millrace("demo", "wordcount", "--show").stdout
    assert shown == DEMOS["wordcount"].file.read_text("utf-8")
    said = offline_millrace("demo", "wordcuont", code=2).stderr
    assert "wordcount" in said


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:1"])
def test_a_kafka_that_cannot_be_used_is_told_before_anything_starts(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLRACE_KAFKA_TIMEOUT", "1s")
    monkeypatch.setattr(command, "_run_demo", None)
    monkeypatch.setattr(command, "fetch_jars", None)
    with pytest.raises(MillraceError, match=address):
        app(["demo", "wordcount", "--for", "1s", "--kafka", address], standalone_mode=False)
    assert not list(tmp_path.iterdir())


def test_python_processes_of_a_demo_are_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: dict[str, object] = {}
    monkeypatch.setattr(session, "open_session", lambda *_, **options: opened.update(options))
    monkeypatch.setattr(session, "close_session", lambda *_, **__: None)
    plan = make_plan(load_sound(str(DEMOS["wordcount"].file)))
    with command._spark(plan, tmp_path, StartupProgress(RunStatus(), Channels())) as opening:
        opening.result(60)
    assert opened["forks_workers"] is True


@pytest.mark.long
def test_runs_for_its_time_and_stops_its_broker(offline_millrace: CommandLine) -> None:
    said = offline_millrace("demo", "--for", "3s", "--rate", "200/s").stderr
    assert "the dashboard is at http://127.0.0.1:" in said
    assert "records are in topic 'posts'" in said
    assert "demo town --show > town.yaml" in said
    assert kafka.running(offline_millrace.folder / ".millrace" / "kafka") is None


@pytest.mark.long
def test_counts_what_is_typed_on_a_named_cluster_and_ends_on_ctrl_c(millrace: CommandLine) -> None:
    with millrace.start("demo", "wordcount", "--for", "10m") as process:
        assert process.stderr is not None
        assert process.stdin is not None
        process.stdin.write(b"to be or not to be\n")
        process.stdin.flush()
        while "be 2, to 2, not 1, or 1" not in process.stderr.readline().decode():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_second_ctrl_c_kills_the_broker_and_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Recorded(kafka.KafkaCluster):
        def start(self, *_: object) -> Cluster:
            return Cluster("127.0.0.1:1")

        def kill_all(self) -> None:
            done.append("killed")

        def stop(self) -> None:
            done.append("stopped")

    monkeypatch.setattr(kafka, "KafkaCluster", Recorded)
    way, page = StartupProgress(RunStatus(), Channels()), cast("RunPage", SimpleNamespace(doing=done.append))
    with pytest.raises(KeyboardInterrupt), command._kafka(None, str(tmp_path), way, page):
        raise KeyboardInterrupt
    assert done == ["Kafka is starting", "killed", "stopped"]


@pytest.mark.chaos
def test_a_second_ctrl_c_leaves_no_broker(offline_millrace: CommandLine) -> None:
    folder = offline_millrace.folder / ".millrace" / "kafka"
    with offline_millrace.start("demo", "--for", "10m") as process:
        assert process.stderr is not None
        assert any(b"the first chart moves" in line for line in iter(process.stderr.readline, b""))
        layout = kafka.running(folder)
        assert layout is not None
        process.send_signal(signal.SIGINT)
        threading.Timer(0.1, process.send_signal, [signal.SIGINT]).start()  # as a hand does
        _, said = process.communicate(timeout=60)
    assert b"Traceback" not in said, said.decode()
    for one in layout.processes().values():
        if found := one.process():
            found.wait(60)
    assert kafka.running(folder) is None


def test_a_demo_begins_anew_and_not_twice_in_one_folder(tmp_path: Path) -> None:
    from millrace.locks import FolderLock

    folder = tmp_path / "town"
    (folder / "checkpoints" / "x").mkdir(parents=True)
    (folder / "pipeline.json").write_text("{}")
    (folder / "millrace-scratch-a").mkdir()  # of a demo that was killed, whose JVM may still be ending
    assert {one.name for one in command.emptied(folder).iterdir()} == {"lock", "millrace-scratch-a"}
    with FolderLock(folder), pytest.raises(MillraceError) as raised:
        command.emptied(folder)
    assert raised.value.condition == "state.mismatch"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"DISPLAY": ":0", "CI": None}, True),
        ({"DISPLAY": ":0", "CI": "true"}, False),
        ({"DISPLAY": None, "WAYLAND_DISPLAY": None, "CI": None}, False),
    ],
)
def test_a_browser_opens_only_where_somebody_sees_it(
    variables: dict[str, str | None], expected: bool, monkeypatch: pytest.MonkeyPatch, set_environment: object
) -> None:
    assert callable(set_environment)
    set_environment(**variables)
    monkeypatch.setattr("sys.platform", "linux")
    assert command.has_display() is expected
