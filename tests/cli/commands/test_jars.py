"""`millrace jars` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import CommandLine

Run = Callable[..., Any]


def test_sets_are_listed(run: Run) -> None:
    found = {one["name"]: one for one in json.loads(run("jars", "list", "--json").out)}
    assert {"kafka", "spark"} <= found.keys()
    kafka = found["kafka"]
    assert kafka["present"] is True  # the broker of the run came from it
    assert kafka["bytes"] == sum(path.stat().st_size for path in Path(kafka["path"]).glob("*.jar"))
    assert any(one.startswith("org.apache.kafka:kafka_2.13:") for one in kafka["artifacts"])
    assert "kafka" in run("jars", "list").out


def test_the_path_of_a_set_is_printed(millrace: CommandLine) -> None:
    folder = Path(millrace("jars", "path", "kafka").stdout.strip())
    assert list(folder.glob("kafka_2.13-*.jar"))


def test_a_set_that_is_there_is_not_fetched_again(run: Run) -> None:
    ran = run("jars", "fetch", "kafka")
    assert ran.out == ""
    assert ran.err.startswith("kafka: ")


def test_a_set_that_is_not_there_has_no_path(offline_run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    ran = offline_run("jars", "path", "kafka", code=2)
    assert (ran.out, ran.err.splitlines()[1]) == ("", "  try: millrace jars fetch kafka")
    found = json.loads(offline_run("jars", "list", "--json").out)
    assert {(one["present"], one["bytes"]) for one in found} == {(False, 0)}


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [(["path", "kafak"], "name.unknown"), (["fetch", "kafak"], "name.unknown"), (["fetch"], "option.invalid")],
)
def test_what_is_wrong_exits_2_with_the_names_there_are(offline_run: Run, arguments: list[str], condition: str) -> None:
    said = offline_run("jars", *arguments, code=2).err
    assert f"error[{condition}]" in said
    assert "kafka" in said
