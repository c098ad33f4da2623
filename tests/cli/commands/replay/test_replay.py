"""`millrace replay` as far as it goes without Spark: what is asked for wrongly, and what is listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson

from cli.conftest import Run
from millrace.cli.commands.replay import stage_text
from millrace.engine.replay import generations
from millrace.engine.replay.generations import Generation, Output
from millrace.engine.replay.progress import ReplayStage

FILE = """
name: trending
sources:
  posts: {kafka: posts, format: text}
sinks:
  - {from: posts, kafka: popular}
"""
SOCKET = """
name: lines
sources:
  lines: {socket: "127.0.0.1:9"}
sinks:
  - {from: lines, kafka: out}
"""


def test_how_far_a_replay_is_in_words() -> None:
    assert stage_text(ReplayStage(250, 1000, 250, 50.0)) == "250 of 1,000 records (25 %), 50/s, 15.0 s left"
    assert stage_text(ReplayStage(1000, 1000, 1000, 50.0)) == "1,000 of 1,000 records (100 %), 50/s"
    assert stage_text(ReplayStage(0, 0, 12, None)) == "12 rows"


def test_wrong_wishes_are_told_in_one_message(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "trending.yaml").write_text(FILE)
    (tmp_path / "lines.yaml").write_text(SOCKET)
    for arguments, said in (
        (("trending.yaml",), "nothing to do"),
        (("trending.yaml", "--switch", "--rollback"), "--switch and --rollback"),
        (("trending.yaml", "--to", "now"), "--from earliest"),
        (("trending.yaml", "--from", "whenever"), "'whenever' is not a valid start"),
        (("lines.yaml", "--from", "earliest"), "cannot be replayed"),
    ):
        ran = offline_run("replay", *arguments, code=2)
        assert said in ran.err, ran


def test_generations_are_listed_and_shown_by_plan(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "trending.yaml").write_text(FILE)
    assert "one generation" in offline_run("replay", "trending.yaml", "--list").err
    base = Path(".millrace/pipelines/trending")
    outputs = (Output("kafka", "popular", "popular.g2"),)
    end = {"posts": {"0": 12, "1": 7}}
    made = Generation(2, ("earliest", "latest"), "", {"posts": {"0": 0, "1": 0}}, end, outputs, done=1.0)
    generations.change(base, lambda now: replace(now.with_generation(made), current=2, before=1))
    listed = orjson.loads(offline_run("replay", "trending.yaml", "--list", "--json").out)
    assert [(one["number"], one["current"], one["outputs"]) for one in listed] == [
        (1, False, ["popular"]),
        (2, True, ["popular.g2"]),
    ]
    assert (
        "no generation after 2"
        in offline_run("replay", "trending.yaml", "--switch", "--kafka", "127.0.0.1:9", code=2).err
    )
    planned = offline_run("plan", "trending.yaml").out
    assert "generation 2, the current one: replayed, from earliest to latest; popular.g2" in planned
    assert "writes topic popular.g2" in planned
    assert "trending@2" in planned
    assert "reads posts: topic posts, where the replay ended (posts 0:12 1:7)" in planned
