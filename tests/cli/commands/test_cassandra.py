"""`millrace cassandra` as a user meets it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from conftest import CommandLine
from millrace.clients.cassandra import Cassandra
from millrace.services import cassandra as service

Run = Callable[..., Any]


@pytest.fixture
def named(cassandra: Cassandra, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' Cassandra as the one to use."""
    monkeypatch.setenv("MILLRACE_CASSANDRA", cassandra.address)


def test_cql_shows_rows(offline_run: Run, named: None, cassandra: Cassandra, keyspace: str) -> None:
    cassandra.execute(f"CREATE TABLE {keyspace}.t (k text PRIMARY KEY, n int, b blob, at timestamp)")
    table = f"{keyspace}.t"
    insert = f"INSERT INTO {table} (k, n, b, at) VALUES ('a', 7, 0x00ff, '2026-05-04T12:00:00Z');"  # noqa: S608
    assert "done" in offline_run("cassandra", "cql", insert).err
    shown = json.loads(offline_run("cassandra", "cql", f"SELECT * FROM {table}", "--json").out)  # noqa: S608
    assert shown == [{"k": "a", "at": "2026-05-04T12:00:00.000Z", "b": "0x00ff", "n": 7}]
    assert "1 row" in offline_run("cassandra", "cql", f"SELECT k FROM {table}").err  # noqa: S608
    assert table in json.loads(offline_run("cassandra", "status", "--json").out)["tables"]
    assert cassandra.address in offline_run("cassandra", "status").out


def test_a_statement_that_is_wrong_is_one_message(offline_run: Run, named: None) -> None:
    assert offline_run("cassandra", "cql", "SELEKT", code=2).err.startswith("error[cassandra.cql-invalid]")


@pytest.mark.chaos
def test_interrupted_while_it_starts_leaves_nothing_running(offline_millrace: CommandLine) -> None:
    with offline_millrace.start("cassandra", "up", "--detach") as process:
        assert process.stderr is not None
        assert any(b"starting" in line for line in iter(process.stderr.readline, b""))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # whoever is impatient does no harm
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert service.running(offline_millrace.folder / ".millrace" / "cassandra") is None


def test_nothing_runs_here(offline_millrace: CommandLine) -> None:
    for command in (["status"], ["cql", "SELECT 1"], ["down"]):
        assert "cassandra.none" in offline_millrace("cassandra", *command, code=2).stderr
