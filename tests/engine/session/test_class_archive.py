"""The archive of Spark's classes: made once, used by every JVM after that, and done without where there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.engine.session import class_archive
from millrace.engine.session.class_archive import class_archive_options, class_archive_path, ensure_class_archive


def test_a_jvm_uses_the_archive(spark: SparkSession) -> None:
    process: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
    assert str(class_archive_path()) in Path(f"/proc/{process.pid}/maps").read_text()


def test_jars_that_were_installed_again_need_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "spark.jar"
    jar.touch()
    monkeypatch.setattr(class_archive, "_jars", lambda: [jar])
    before = class_archive_path()
    assert class_archive_path() == before

    os.utime(jar, (1, 1))

    assert class_archive_path() != before


def test_a_java_that_makes_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    asked: list[str] = []
    monkeypatch.setattr(class_archive, "_PROGRAM", "millrace.engine.no_such_module")
    ensure_class_archive(asked.append)
    ensure_class_archive(asked.append)
    assert len(asked) == 1
    assert class_archive_options() == ""


def test_only_a_few_archives_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(class_archive, "_PROGRAM", "millrace.engine.no_such_module")
    (tmp_path / "classes").mkdir()
    for age in range(5):
        old = tmp_path / "classes" / f"spark-{age}.jsa"
        old.touch()
        os.utime(old, (age, age))
    ensure_class_archive(lambda _: None)
    assert {path.name for path in (tmp_path / "classes").glob("*.jsa")} == {
        "spark-4.jsa",
        "spark-3.jsa",
        class_archive_path().name,
    }
