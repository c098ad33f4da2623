"""`millrace doctor` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import CommandLine
from millrace.clients.kafka.cluster import Cluster
from millrace.services.process import free_port

Run = Callable[..., Any]


@pytest.fixture
def examined(run: Run) -> Callable[..., dict[str, dict[str, str | None]]]:
    """Every finding by its name."""

    def examine(code: int) -> dict[str, dict[str, str | None]]:
        return {one["name"]: one for one in json.loads(run("doctor", "--json", code=code).out)}

    return examine


def test_a_machine_that_runs_a_broker_is_well(millrace: CommandLine, cluster: Cluster) -> None:
    found = {one["name"]: one for one in json.loads(millrace("doctor", "--json").stdout)}
    names = {"Java", "Python", "PySpark", "jars: kafka", "jars: spark", "ports", "disk", "memory", "Kafka"}
    assert names <= found.keys()
    assert all(one.keys() == {"name", "verdict", "found", "mend"} for one in found.values())
    assert found["Java"]["verdict"] == found["jars: kafka"]["verdict"] == found["Kafka"]["verdict"] == "ok"
    assert cluster.bootstrap in found["Kafka"]["found"]


def test_the_table_tells_the_same(run: Run) -> None:
    shown = run("doctor").out
    assert all(name in shown for name in ("Java", "PySpark", "jars: kafka", "Kafka", "ok"))


def test_a_missing_java_is_bad_and_mended_by_installing_one(
    examined: Callable[..., dict[str, Any]], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("MILLRACE_JAVA", "JAVA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    java = examined(code=1)["Java"]
    assert java["verdict"] == "bad"
    assert "openjdk-17" in java["mend"]
    assert "openjdk-17" in run("doctor", code=1).out


def test_a_java_that_is_set_and_not_there_is_bad(
    examined: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_JAVA", "/nonexistent")
    java = examined(code=1)["Java"]
    assert (java["verdict"], "MILLRACE_JAVA" in java["mend"]) == ("bad", True)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "11.0.2"),
        ("echo 'java version \"1.8.0_292\"' >&2", "8.0_292"),
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", "Unable to locate"),
    ],
)
def test_a_java_that_is_too_old_or_none_is_bad(
    examined: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, told: str
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("MILLRACE_JAVA", str(java))
    found = examined(code=1)["Java"]
    assert (found["verdict"], told in found["found"]) == ("bad", True)
    assert found["mend"]


def test_jars_that_are_not_fetched_are_a_warning(
    examined: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    found = examined(code=0)["jars: kafka"]
    assert (found["verdict"], found["mend"]) == ("warn", "millrace jars fetch kafka")


def test_a_cluster_that_does_not_answer_is_bad(
    examined: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("MILLRACE_KAFKA_TIMEOUT", "500ms")
    found = examined(code=1)
    assert {name for name, one in found.items() if one["verdict"] == "bad"} == {"Kafka"}
    assert found["Kafka"]["mend"]
