"""Who uses a state folder on a store."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from millrace.engine import tenure
from millrace.engine.tenure import Tenure
from millrace.errors import RunError, StateMismatch
from millrace.stores import StorePath, mounted
from test_stores import Kept

FOLDER = StorePath("s3a://bucket/state")
NOTE = "s3a://bucket/state/holder.json"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setattr(tenure, "RENEWED", 0.02)
    monkeypatch.setattr(tenure, "STALE", 0.3)
    monkeypatch.setattr(tenure, "_LOOK", 0.01)
    kept = Kept()
    with mounted(kept):
        yield kept


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def note(**told: object) -> bytes:
    return json.dumps({"id": "other", "host": "elsewhere", "pid": 1, "turn": 0, **told}).encode()


def test_one_at_a_time(store: Kept) -> None:
    first, second = Tenure(FOLDER), Tenure(FOLDER)
    first.acquire()
    with pytest.raises(StateMismatch):
        second.acquire()
    first.require()
    first.release()
    assert not store.files
    second.acquire()
    second.release()


def test_a_note_that_nobody_renews_is_taken_over(store: Kept) -> None:
    store.files[NOTE] = note()
    told: list[str] = []
    one = Tenure(FOLDER, told.append)
    one.acquire()
    assert "process 1 on elsewhere" in told[0]
    assert json.loads(store.files[NOTE])["id"] != "other"
    one.release()


def test_a_process_of_this_machine_that_has_ended_is_not_waited_for(store: Kept) -> None:
    store.files[NOTE] = note(host=socket.gethostname(), pid=2**22 + 1)
    told: list[str] = []
    one = Tenure(FOLDER, told.append)
    one.acquire()
    assert not told
    one.release()


def test_who_was_away_finds_another_and_leaves_its_note(store: Kept) -> None:
    one = Tenure(FOLDER)
    one.acquire()
    store.files[NOTE] = note()
    until(lambda: not one._thread.is_alive())
    with pytest.raises(StateMismatch):
        one.require()
    one.release()
    assert json.loads(store.files[NOTE])["id"] == "other"


def test_a_store_that_is_away_for_long_ends_the_run(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Tenure(FOLDER)
    one.acquire()

    def away(url: str) -> bytes:
        raise OSError(0, "no answer", url)

    with monkeypatch.context() as patched:
        patched.setattr(store, "read", away)
        one.require()
        until(lambda: not one._thread.is_alive())
        with pytest.raises(RunError):
            one.require()
    one.release()
