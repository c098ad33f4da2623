"""Who uses a state folder on a store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from millrace.engine.checkpoints import object_store_lock
from millrace.engine.checkpoints.object_store_lock import ObjectStoreLock
from millrace.errors import ClusterUnfit, RunError, StateMismatch
from millrace.object_stores import StorePath, mounted
from test_object_stores import Kept

FOLDER = StorePath("s3a://bucket/state")
TERMS = f"{FOLDER}/holders/"


class Clock:
    """Time that passes when somebody waits for it, or when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.passing: Callable[[], None] = lambda: None

    def clock_gettime(self, _: int) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.passing()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(object_store_lock, "time", made)
    return made


@pytest.fixture
def store() -> Iterator[Kept]:
    kept = Kept()
    with mounted(kept):
        yield kept


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signs of life by themselves: a process that sleeps."""
    monkeypatch.setattr(ObjectStoreLock, "_live", lambda _: None)


def name(number: int, kind: str = "term") -> str:
    return f"{TERMS}{number:012d}.{kind}"


def taken() -> ObjectStoreLock:
    made = ObjectStoreLock(FOLDER)
    made.acquire()
    return made


def test_who_lets_go_is_not_waited_for(store: Kept, clock: Clock, alone: None) -> None:
    before = clock.now
    for number in range(1, 5):
        one = taken()
        one.check()
        one.release()
        assert {name(number), name(number, "over")} <= set(store.files)
    assert clock.now == before
    assert {url.removeprefix(TERMS).split(".")[0] for url in store.files} == {"000000000003", "000000000004"}


def test_a_second_one_is_refused_while_the_first_lives(store: Kept, clock: Clock, alone: None) -> None:
    first = taken()
    clock.passing = first._look
    with pytest.raises(StateMismatch):
        taken()
    first.check()


@pytest.mark.parametrize("note", [b"", b'{"id": "', b'{"id": "other", "host": "elsewhere", "pid": 1}'])
def test_a_silent_one_is_waited_for_whatever_its_note_is_like(
    store: Kept, clock: Clock, alone: None, note: bytes
) -> None:
    store.files[name(7)] = note
    told: list[str] = []
    began = clock.now
    ObjectStoreLock(FOLDER, told.append).acquire()
    assert clock.now - began >= object_store_lock.STALE
    assert name(8) in store.files
    assert ("process 1 on elsewhere" in told[0]) == note.endswith(b"}")


def test_a_note_of_this_very_process_is_no_reason_not_to_wait(store: Kept, clock: Clock, alone: None) -> None:
    """In containers a host and a process id come again."""
    taken()
    began = clock.now
    taken()
    assert clock.now - began >= object_store_lock.STALE


def test_of_two_that_take_over_at_once_one_does(store: Kept, clock: Clock, alone: None) -> None:
    store.files[name(1)] = b""
    found: list[ObjectStoreLock] = []
    refused: list[StateMismatch] = []
    both = threading.Barrier(2)
    write = store.write

    def together(url: str, content: bytes, *, new: bool = False) -> None:
        if new and not store.files.get(name(2)):
            both.wait(10)
        write(url, content, new=new)

    def take() -> None:
        try:
            found.append(taken())
        except StateMismatch as error:
            refused.append(error)

    store.write = together  # type: ignore[method-assign]
    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (len(found), len(refused)) == (1, 1)
    found[0].check()


def test_who_comes_too_late_with_an_old_number_holds_nothing(store: Kept, clock: Clock, alone: None) -> None:
    late = ObjectStoreLock(FOLDER)
    newest = late._newest
    late._newest = lambda: (store.files.update({name(5): b""}), setattr(late, "_newest", newest), 0)[-1]  # type: ignore
    with pytest.raises(StateMismatch):
        late.acquire()


def test_who_was_asleep_asks_before_it_writes(store: Kept, clock: Clock, alone: None) -> None:
    sleeper = taken()
    other = taken()  # after all that waiting
    with pytest.raises(StateMismatch):
        sleeper.check()
    sleeper.release()
    assert name(1, "over") not in store.files
    other.check()


def test_who_was_asleep_and_was_not_missed_goes_on(store: Kept, clock: Clock, alone: None) -> None:
    sleeper = taken()
    sign = store.files[name(1, "alive")]
    clock.now += 3600
    sleeper.check()
    assert store.files[name(1, "alive")] != sign


def test_an_answer_that_comes_late_is_none(
    store: Kept, clock: Clock, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = taken()
    names, asked = store.names, 0

    def late(url: str) -> list[str]:
        nonlocal asked
        found, asked = names(url), asked + 1
        if asked == 1:  # asleep once more, with the answer in hand
            clock.now += 25
            store.files[name(2)] = b""
        return found

    monkeypatch.setattr(store, "names", late)
    clock.now += object_store_lock.STALE
    with pytest.raises(StateMismatch):
        sleeper.check()
    assert asked == 2


def test_what_the_last_look_found_is_known_without_asking(
    store: Kept, clock: Clock, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = taken()
    taken()
    sleeper.check_cached()
    sleeper._look()
    monkeypatch.setattr(store, "names", None)
    with pytest.raises(StateMismatch):
        sleeper.check_cached()


def test_who_takes_over_from_one_that_wakes_up_gives_way(store: Kept, clock: Clock, alone: None) -> None:
    sleeper = taken()
    taker = ObjectStoreLock(FOLDER)
    make = taker._make

    def woken() -> bool:
        sleeper._look()  # it has seen that it holds, and goes on; the term comes only now
        return make()

    taker._make = woken  # type: ignore[method-assign]
    with pytest.raises(StateMismatch):
        taker.acquire()
    sleeper.check()
    clock.now += 3600
    sleeper.check()


def test_a_term_that_vanishes_is_not_taken_over(store: Kept, clock: Clock, alone: None) -> None:
    """It was of one that gave way to the holder before it, who lives."""
    taken()
    store.files[name(2)] = b""
    clock.passing = lambda: store.files.pop(name(2), None)  # type: ignore[assignment, return-value]
    with pytest.raises(StateMismatch):
        taken()


def test_a_store_that_does_not_answer(store: Kept, clock: Clock, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    one = taken()

    def away(url: str) -> list[str]:
        raise OSError(0, "no answer", url)

    with monkeypatch.context() as patched:
        patched.setattr(store, "names", away)
        one.check()  # nobody can have taken it so soon
        clock.now += object_store_lock.STALE
        with pytest.raises(RunError):
            one.check()
    one.check()


def test_a_store_without_conditional_writes_is_refused(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(url: str, content: bytes, *, new: bool = False) -> None:
        del new
        store.files[url] = content

    monkeypatch.setattr(store, "write", careless)
    with pytest.raises(ClusterUnfit):
        taken()


def test_an_answer_that_was_lost(store: Kept, clock: Clock, alone: None) -> None:
    """The store has made the term, and a client that asks once more is told that it is there."""
    one = ObjectStoreLock(FOLDER)
    write = store.write

    def twice(url: str, content: bytes, *, new: bool = False) -> None:
        write(url, content, new=new)
        if new:
            write(url, content, new=new)

    store.write = twice  # type: ignore[method-assign]
    one.acquire()
    one.check()
    assert json.loads(store.files[name(1)])["id"] == one._id


def test_signs_of_life_come_by_themselves(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store_lock, "RENEWED", 0.01)
    one = taken()
    first = store.files[name(1, "alive")]
    deadline = time.monotonic() + 10
    while store.files[name(1, "alive")] == first:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    one.release()
    assert not one._thread.is_alive()
