"""The archive of Spark's classes: made once, used by every JVM after that, and done without where there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.engine import archive


def test_a_jvm_uses_the_archive(spark: SparkSession) -> None:
    process: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
    assert str(archive.archive()) in Path(f"/proc/{process.pid}/maps").read_text()


def test_jars_that_were_installed_again_need_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "spark.jar"
    jar.touch()
    monkeypatch.setattr(archive, "_jars", lambda: [jar])
    before = archive.archive()
    assert archive.archive() == before

    os.utime(jar, (1, 1))

    assert archive.archive() != before


def test_a_java_that_makes_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    asked: list[str] = []
    monkeypatch.setattr(archive, "_TRAINING", "millrace.engine.no_such_module")
    archive.ensure(asked.append)
    archive.ensure(asked.append)
    assert len(asked) == 1
    assert archive.options() == ""


def test_only_a_few_archives_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(archive, "_TRAINING", "millrace.engine.no_such_module")
    (tmp_path / "classes").mkdir()
    for age in range(5):
        old = tmp_path / "classes" / f"spark-{age}.jsa"
        old.touch()
        os.utime(old, (age, age))
    archive.ensure(lambda _: None)
    assert {path.name for path in (tmp_path / "classes").glob("*.jsa")} == {
        "spark-4.jsa",
        "spark-3.jsa",
        archive.archive().name,
    }
