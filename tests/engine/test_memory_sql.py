"""SQL over memory tables: answered, bounded, refused before and after the run, and the same for `millrace query`."""

from __future__ import annotations

import datetime
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from millrace.connectors.memory import MEMORY
from millrace.engine import memory_sql
from millrace.engine.memory_sql import MemorySql, QueryServer, ask_run
from millrace.errors import InputError, InvalidSql, MillraceError, NotReady, ServiceFailed, UnknownName

ENDLESS = "SELECT count(*) FROM range(1000000000000)"
ROOMS = pa.table({"room": ["attic", "hall"], "n": [2, 1]})


def put(name: str, table: pa.Table, batch: int = 0) -> None:
    MEMORY.put(name, table, batch, mode="complete", key=(), limit=10)


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """One table in memory, and none of other tests."""
    MEMORY.clear()
    put("rooms", ROOMS)
    yield
    MEMORY.clear()


@pytest.fixture(scope="module")
def memory() -> Iterator[MemorySql]:
    """Answers all the time."""
    made = MemorySql()
    made.open()
    yield made
    made.close()


def rows(memory: MemorySql, sql: str) -> list[list[Any]]:
    found: list[list[Any]] = memory.ask(sql, 100)["rows"]
    return found


def test_a_select_is_answered_over_the_newest_rows(memory: MemorySql) -> None:
    found = memory.ask("SELECT room FROM Rooms WHERE n > 1", 10)
    assert found == {"columns": ["room"], "rows": [["attic"]], "more": False}
    put("rooms", pa.table({"room": ["cellar"], "n": [7]}), 1)
    while rows(memory, "SELECT room, n FROM rooms") != [["cellar", 7]]:
        pass  # a copy serves for some milliseconds


def test_at_most_the_rows_asked_for_come_in_the_order_asked_for(memory: MemorySql) -> None:
    put("numbers", pa.table({"i": list(range(1000))}))
    found = memory.ask("SELECT i FROM numbers ORDER BY i DESC -- all", 3)
    assert found == {"columns": ["i"], "rows": [[999], [998], [997]], "more": True}
    assert not memory.ask("SELECT i FROM numbers", 1000)["more"]


def test_values_are_plain(memory: MemorySql) -> None:
    moment = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "window": pa.array([{"start": moment}], pa.struct([("start", pa.timestamp("us", "Europe/Berlin"))])),
            "price": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
            "raw": pa.array([b"\x00\xff"]),
            "words": pa.array([["a", None]]),
            "counts": pa.array([{"a": 1}], pa.map_(pa.string(), pa.int64())),
            "rate": pa.array([float("nan")]),
        }
    )
    put("values_", table)
    assert rows(memory, "SELECT * FROM values_") == [
        [{"start": "2026-05-01 12:00:00"}, "1.50", "00ff", ["a", None], {"a": 1}, None]
    ]
    assert rows(memory, "SELECT sum(n), 2::HUGEINT ** 64 IS NOT NULL, 18446744073709551616 FROM rooms") == [
        [3, True, "18446744073709551616"]
    ]
    assert rows(memory, "SELECT INTERVAL 3 DAYS") == [["0 months 3 days 0 seconds"]]
    with pytest.raises(InputError, match="cannot be shown"):
        memory.ask("SELECT TIMESTAMP '290000-01-01'", 1)


def test_tables_and_columns_can_be_listed(memory: MemorySql) -> None:
    put("others", pa.table({"a": [1]}))
    assert rows(memory, "SHOW TABLES") == [["others"], ["rooms"]]
    assert [row[:2] for row in rows(memory, "DESCRIBE rooms")] == [["room", "VARCHAR"], ["n", "BIGINT"]]


def test_only_tables_that_a_question_names_are_copied(memory: MemorySql, monkeypatch: pytest.MonkeyPatch) -> None:
    put("others", pa.table({"a": [1]}))
    read: list[str] = []
    monkeypatch.setattr(MEMORY, "table", lambda name: read.append(name) or ROOMS)
    fresh = MemorySql()
    fresh.open()
    for _ in range(2):
        assert rows(fresh, "SELECT count(*) FROM ROOMS") == [[2]]
    assert rows(fresh, "SELECT 1") == [[1]]
    assert read == ["rooms"], "once, as it has not changed"
    assert rows(fresh, "SELECT count(*) FROM query_table('oth' || 'ers')") == [[2]], "a name that is put together"
    assert read == ["rooms", "others"]
    fresh.close()


def test_copies_do_not_take_more_than_their_share_of_the_time(
    memory: MemorySql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that have no room beside each other are not copied by turns as quickly as somebody asks."""
    put("others", ROOMS)
    monkeypatch.setattr(memory_sql, "_MAX_TABLES_BYTES", ROOMS.nbytes)
    monkeypatch.setattr(memory_sql, "_COPY_PAUSE_FACTOR", 1e9)
    fresh = MemorySql()
    fresh.open()
    for name in ("rooms", "others"):
        assert rows(fresh, f"SELECT count(*) FROM {name}") == [[2]]  # noqa: S608
    with pytest.raises(NotReady, match="a moment ago"):
        fresh.ask("SELECT * FROM rooms", 1)
    put("others", pa.table({"room": ["x"], "n": [1]}), 1)
    assert rows(fresh, "SELECT count(*) FROM others") == [[2]], "as it was"
    fresh.close()


def test_tables_that_are_too_large_together(memory: MemorySql, monkeypatch: pytest.MonkeyPatch) -> None:
    put("others", ROOMS)
    monkeypatch.setattr(memory_sql, "_MAX_TABLES_BYTES", ROOMS.nbytes)
    with pytest.raises(InputError, match="too large"):
        memory.ask("SELECT * FROM rooms, others", 1)
    assert rows(memory, "SHOW TABLES") == [["others"], ["rooms"]], "of which nothing is copied"
    with pytest.raises(UnknownName):
        memory.ask("SELECT * FROM nosuch", 1)


def test_json_that_is_much_larger_than_its_columns_is_not_sent(memory: MemorySql) -> None:
    with pytest.raises(InputError, match="too large"):
        memory.ask(f"SELECT list({{'{'a' * 100}': true}}) FROM range(100000)", 1)  # noqa: S608


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT room FROM halls", UnknownName),
        ("SELECT room FROM rooms WHERE", InvalidSql),
        ("SELECT rum FROM rooms", InvalidSql),
        ("SELECT room::INT FROM rooms", InvalidSql),
        ("SELECT explode([1])", InvalidSql),
        ("SELECT 1; SELECT 2", InvalidSql),
        ("-- nothing", InvalidSql),
        ("DROP VIEW rooms", InvalidSql),
        ("CREATE TABLE t (i INT)", InvalidSql),
        ("INSERT INTO rooms VALUES ('x', 1)", InvalidSql),
        ("SET threads = 4", InvalidSql),
        ("SELECT repeat('x', 1500000000)", InputError),
        ("SELECT repeat('x', 9000000)", InputError),
    ],
)
def test_a_question_that_cannot_be_answered_is_the_askers_mistake(
    memory: MemorySql, sql: str, kind: type[InputError]
) -> None:
    with pytest.raises(kind):
        memory.ask(sql, 10)
    assert rows(memory, "SELECT count(*) FROM rooms") == [[2]], "and does nothing to the next"


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT at FROM rooms", '"at"'),
        ("SELECT window.start FROM rooms", '"window"'),
        ("SELECT explode([n]) FROM rooms", "unnest"),
        ("SELECT size([n]) FROM rooms", "len"),
        ('SELECT * FROM rooms WHERE room = "attic"', "single quotes"),
        ("SELECT no_such_function(n) FROM rooms", "not Spark's"),
    ],
)
def test_people_who_write_sparks_sql_are_helped(memory: MemorySql, sql: str, hint: str) -> None:
    with pytest.raises(InvalidSql) as refused:
        memory.ask(sql, 1)
    assert hint in str(refused.value.hint)


def test_nothing_in_memory_yet(memory: MemorySql) -> None:
    MEMORY.clear()
    with pytest.raises(NotReady):
        memory.ask("SELECT * FROM rooms", 1)
    assert rows(memory, "SELECT 1") == [[1]]


def test_nothing_that_a_question_does_outlives_its_answer(memory: MemorySql) -> None:
    """DuckDB lets a WITH write; so every question has a database of its own."""
    for _ in range(2):
        with pytest.raises(InputError):
            memory.ask("WITH w AS (INSERT INTO rooms VALUES ('x', 9) RETURNING n) SELECT * FROM w", 1)
        assert rows(memory, "SELECT sum(n) FROM rooms") == [[3]]


def answering(memory: MemorySql) -> psutil.Process:
    """The process that works on a question."""
    while True:
        process = memory._process
        for child in psutil.Process(process._popen.pid).children() if process else ():
            return child


def test_a_question_that_takes_too_long_is_given_up_and_others_wait_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_sql, "_MAX_WAIT_S", 0.0)
    memory = MemorySql(timeout_s=2.0)
    memory.open()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(memory.ask, ENDLESS, 1)
        child = answering(memory)
        assert child.nice() == min(19, os.nice(0) + 10), "the pipeline goes first"
        group = Path(f"/proc/{child.pid}/autogroup")
        assert not group.exists() or group.read_text("ascii").endswith("nice 10\n")
        with pytest.raises(NotReady, match="another query"):
            memory.ask("SELECT 1", 1)
        with pytest.raises(InputError, match="took longer than 2 s"):
            slow.result(60)
    memory._timeout_s = 60.0  # its process has a low priority: on a busy machine any question may take seconds
    assert rows(memory, "SELECT 1") == [[1]]
    memory.close()


def test_the_end_of_the_run_ends_the_question_and_its_processes() -> None:
    memory = MemorySql(timeout_s=600)
    with pytest.raises(NotReady, match="starting"):
        memory.ask("SELECT 1", 1)
    memory.open()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(memory.ask, ENDLESS, 1)
        child = answering(memory)
        memory.close()
        with pytest.raises(NotReady, match="has ended"):
            slow.result(60)
    with pytest.raises(NotReady, match="has ended"):
        memory.ask("SELECT 1", 1)
    with suppress(psutil.NoSuchProcess):  # it was killed, and ends a moment later: it is no child of this process
        while child.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)


def test_a_process_that_is_killed_is_started_again(memory: MemorySql) -> None:
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(memory.ask, ENDLESS, 1)
        answering(memory).parent().kill()  # type: ignore[union-attr]
        with pytest.raises(ServiceFailed):
            slow.result(60)
    assert rows(memory, "SELECT sum(n) FROM rooms") == [[3]]


def test_an_answer_that_comes_after_its_question_was_given_up_is_not_that_of_the_next(memory: MemorySql) -> None:
    """A child that is killed when it has just answered has two lines: its answer, and why it ended."""
    memory.ask("SELECT 1", 1)
    assert memory._process
    late = {"sql": "SELECT 'late'", "max_rows": 1, "max_bytes": 1000, "timeout_s": 60, "tables": [], "schemas": {}}
    memory._process._write({**late, "number": 0})
    assert rows(memory, "SELECT sum(n) FROM rooms") == [[3]]
    assert rows(memory, "SELECT max(n) FROM rooms") == [[2]]


def test_the_process_ends_with_its_parent(memory: MemorySql) -> None:
    """The run may be killed; then its input ends."""
    memory.ask("SELECT 1", 1)
    process = memory._process
    assert process
    assert process._popen.stdin
    process._popen.stdin.close()
    assert process._popen.wait(60) == 0


def test_millrace_query_asks_the_run_in_a_folder(tmp_path: Path) -> None:
    with QueryServer(MemorySql(), tmp_path):
        assert ask_run(tmp_path, "SELECT room FROM rooms WHERE n > 1", 10)["rows"] == [["attic"]]
        with pytest.raises(InputError, match="halls"):
            ask_run(tmp_path, "SELECT room FROM halls", 10)
    with pytest.raises(InputError, match="no pipeline runs"):
        ask_run(tmp_path, "SELECT room FROM rooms", 10)


@pytest.mark.parametrize("folder", ["mine", "long" * 40])
def test_only_the_account_of_the_run_reaches_its_socket(tmp_path: Path, folder: str) -> None:
    """Its folder need not be there, and its name may be longer than the address of a socket."""
    with QueryServer(MemorySql(), tmp_path / "pipelines" / folder):
        note = tmp_path / "pipelines" / folder / "query.json"
        address = Path(json.loads(note.read_text("utf-8"))["socket"])
        assert (note.stat().st_mode & 0o777, address.stat().st_mode & 0o777) == (0o600, 0o600)
        assert ask_run(note.parent, "SELECT 1", 1)["rows"] == [[1]]
    assert not address.exists()
    assert not list(note.parent.iterdir())
    assert folder == "mine" or not address.parent.exists()


def test_somebody_silent_or_without_the_key_does_not_keep_others_out(tmp_path: Path) -> None:
    with QueryServer(MemorySql(), tmp_path), socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tmp_path / "query.sock"))
        note = tmp_path / "query.json"
        right = note.read_text("utf-8")
        note.write_text(json.dumps(json.loads(right) | {"key": "00"}), "utf-8")
        with pytest.raises(InputError, match="key"):
            ask_run(tmp_path, "SELECT 1", 1)
        note.write_text(right, "utf-8")
        assert ask_run(tmp_path, "SELECT 1", 1)["rows"] == [[1]]


def test_a_run_whose_folder_can_have_no_socket_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 40)))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / ("long" * 40)).mkdir()
    said: list[str] = []
    with QueryServer(memory := MemorySql(), tmp_path / ("state" * 40), said.append):
        assert said
        assert memory.ask("SELECT 1", 1)["rows"] == [[1]], "the dashboard can still ask"
    assert not list((tmp_path / ("long" * 40)).iterdir())


def test_its_thread_ends_with_it(tmp_path: Path) -> None:
    with QueryServer(MemorySql(), tmp_path):
        threads = [one for one in threading.enumerate() if one.name == "query-server"]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_questions_beyond_those_that_may_wait_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_sql, "_MAX_PENDING", 1)
    memory = MemorySql()
    memory.open()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(memory.ask, ENDLESS, 1)
        answering(memory)
        with pytest.raises(NotReady, match="too many"):
            memory.ask("SELECT 1", 1)
        memory.close()
        with pytest.raises(MillraceError):
            slow.result(60)


def test_a_process_that_cannot_start_says_why(memory: MemorySql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_sql, "_MAIN", "raise SystemExit('no DuckDB here')")
    failed: Callable[[], object] = lambda: memory.ask("SELECT 1", 1)  # noqa: E731
    with pytest.raises(ServiceFailed) as problem:
        failed()
    assert "no DuckDB here" in str(problem.value.why)
