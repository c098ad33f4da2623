"""Questions to a running pipeline: answered, refused when it has ended, and never with Spark stopped under them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millrace.connectors.memory import MEMORY
from millrace.engine import questions
from millrace.engine.answering import Answering, ask
from millrace.engine.questions import Questions
from millrace.errors import InputError, NotReady

ENDLESS = "SELECT count(id % 7) FROM range(1000000000000)"


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


def test_a_run_may_have_no_folder_yet(tmp_path: Path) -> None:
    """Its state is on a store, and it is the first where the driver works."""
    folder = tmp_path / "pipelines" / "mine"
    with Answering(None, folder):  # type: ignore[arg-type]
        assert (folder / "query.json").stat().st_mode & 0o777 == 0o600


def test_a_question_leaves_no_view_behind_and_no_view_is_lost(spark: SparkSession, rooms: None) -> None:
    spark.range(3).createOrReplaceTempView("rooms")
    asked = Questions(spark)
    for _ in range(2):
        assert asked.ask("SELECT count(*) FROM Rooms r WHERE r.room = 'attic'", 10)["rows"] == [[1]]
        assert spark.sql("SELECT count(*) FROM rooms").head() == (3,)
    spark.catalog.dropTempView("rooms")
    asked.ask("SELECT * FROM rooms", 10)
    assert not spark.catalog.tableExists("rooms")


def test_only_what_is_asked_for_is_read(spark: SparkSession, rooms: None, monkeypatch: pytest.MonkeyPatch) -> None:
    MEMORY.put("others", pa.table({"a": [1]}), 0, mode="complete", key=(), limit=10)
    read: list[str] = []
    monkeypatch.setattr(MEMORY, "table", lambda name: read.append(name) or pa.table({"n": [1]}))
    questions.answer(spark, "SELECT n FROM rooms", 10)
    assert read == ["rooms"]


@pytest.mark.parametrize("sql", ["SELECT 1/0", "SELECT int(room) FROM rooms", "SELECT array(1)[n] FROM rooms"])
def test_what_the_data_do_not_allow_is_the_askers_mistake(spark: SparkSession, rooms: None, sql: str) -> None:
    with pytest.raises(InputError):
        questions.answer(spark, sql, 10)


def test_an_answer_that_takes_too_long_is_given_up_and_another_one_is_told_to_wait(spark: SparkSession) -> None:
    asked = Questions(spark, limit=2.0)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(asked.ask, ENDLESS, 1)
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            assert not slow.done(), slow.exception()
        with pytest.raises(NotReady, match="another question"):
            asked.ask("SELECT 1", 1)
        with pytest.raises(InputError, match="took longer than 2 s"):
            slow.result(60)
    assert asked.ask("SELECT 1 AS one", 1) == {"columns": ["one"], "rows": [[1]]}


def test_the_end_stops_an_answer_that_is_under_way(spark: SparkSession) -> None:
    asked = Questions(spark, limit=600)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(asked.ask, ENDLESS, 1)
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            assert not slow.done(), slow.exception()
        asked.close()
        with pytest.raises(NotReady, match="has ended"):
            slow.result(60)
    with pytest.raises(NotReady, match="has ended"):
        asked.ask("SELECT 1", 1)


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
        questions.answer(None, sql, 10)  # type: ignore[arg-type]  # refused before Spark is asked
