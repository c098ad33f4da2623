"""Questions to a running pipeline: answered, refused when it has ended, and never with Spark stopped under them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millrace.connectors.memory import MEMORY
from millrace.engine import answering
from millrace.engine.answering import Answering, ask
from millrace.errors import InputError


@pytest.fixture
def rooms() -> None:
    """A table in memory."""
    MEMORY.clear()
    MEMORY.put("rooms", pa.table({"room": ["attic", "hall"], "n": [2, 1]}), 0, mode="complete", key=(), limit=10)


def test_a_question_is_answered_while_the_run_lasts(spark: SparkSession, tmp_path: Path, rooms: None) -> None:
    with Answering(spark, tmp_path):
        assert ask(tmp_path, "SELECT room FROM rooms WHERE n > 1", 10) == {"columns": ["room"], "rows": [["attic"]]}
        with pytest.raises(InputError, match="halls"):
            ask(tmp_path, "SELECT room FROM halls", 10)
    with pytest.raises(InputError):
        ask(tmp_path, "SELECT room FROM rooms", 10)


def test_the_end_waits_for_an_answer_that_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go = threading.Event(), threading.Event()
    monkeypatch.setattr(answering, "answer", slow(asked, go))
    running = Answering(None, tmp_path)  # type: ignore[arg-type]
    with ThreadPoolExecutor(2) as pool:
        running.__enter__()
        answer = pool.submit(ask, tmp_path, "SELECT 1", 1)
        assert asked.wait(30)
        end = pool.submit(running.__exit__)
        while (tmp_path / "query.json").exists():
            pass  # the end has begun when nobody new can ask
        assert not end.done()
        go.set()
        end.result(30)
        assert answer.result(30) == {"columns": [], "rows": []}


def slow(asked: threading.Event, go: threading.Event) -> Callable[..., dict[str, Any]]:
    def answer(*_: object) -> dict[str, Any]:
        asked.set()
        assert go.wait(30)
        return {"columns": [], "rows": []}

    return answer


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM text.`/etc/hostname`",
        "SELECT room FROM rooms WHERE room IN (SELECT value FROM text.`/etc/hostname`)",
        "WITH a AS (SELECT * FROM spark_catalog.default.b) SELECT * FROM a",
        "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
        "SELECT Reflect('java.lang.System', 'exit', 0) FROM rooms",
        "SELECT * FROM IDENTIFIER('text.`/etc/hostname`')",
        "DROP TABLE rooms",
        "INSERT INTO rooms SELECT 1, 2",
        "SELECT 1; SELECT 2",
    ],
)
def test_only_tables_in_memory_can_be_read(sql: str, rooms: None) -> None:
    with pytest.raises(InputError):
        answering.answer(None, sql, 10)  # type: ignore[arg-type]  # refused before Spark is asked
