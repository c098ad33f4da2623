"""Whatever happens, a reader that applies what it is told has exactly what is there."""

from __future__ import annotations

import threading
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from millrace.telemetry.channels import Channels, Delta, RowBuffer, Slot

SIZE = 5


class Copy:
    """A reader as a page is one."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.columns: dict[str, list[Any]] = {}

    def apply(self, delta: Delta | None) -> None:
        """Take in what was missed."""
        if delta is None:
            return
        told = orjson.loads(orjson.dumps(delta.data))
        if delta.kind == "snapshot":
            self.columns = {}
        rows = self.rows()
        fresh = max((len(values) for values in told["columns"].values()), default=0)
        if delta.kind == "append":
            assert self.version is not None
            assert delta.version - self.version == fresh
        for name, values in told["columns"].items():
            self.columns[name] = (self.columns.get(name, [None] * rows) + values)[-told["size"] :]
        self.version = delta.version

    def rows(self) -> int:
        """How many there are."""
        return max((len(values) for values in self.columns.values()), default=0)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 8), st.sampled_from("abc")),
    st.tuples(st.just("read"), st.integers(0, 2)),
    st.tuples(st.just("forget"), st.integers(0, 2)),
    st.tuples(st.just("clear")),
)


@given(st.lists(STEPS, max_size=40))
def test_every_reader_has_the_newest_rows_after_any_sequence(steps: list[tuple[Any, ...]]) -> None:
    ring, copies = RowBuffer(SIZE, ("time",)), [Copy(), Copy(), Copy()]
    kept: list[dict[str, Any]] = []
    number = 0
    for step in steps:
        if step[0] == "append":
            rows = [{"time": number + place, step[2]: place} for place in range(step[1])]
            number += step[1]
            ring.extend(rows)
            kept = (kept + rows)[-SIZE:]
        elif step[0] == "clear":
            ring.clear()
            kept = []
        elif step[0] == "forget":
            copies[step[1]] = Copy()
        else:
            copies[step[1]].apply(ring.since(copies[step[1]].version))
    for copy in copies:
        copy.apply(ring.since(copy.version))
        assert copy.columns.get("time", []) == [row["time"] for row in kept]
        assert copy.version == ring.version or (copy.version is None and ring.version == 0)
        for name in "abc":
            assert copy.columns.get(name, [None] * len(kept)) == [row.get(name) for row in kept]
        assert ring.since(copy.version) is None or copy.version is None


def test_a_slot_gives_its_latest_value_only() -> None:
    slot = Slot()
    assert slot.since(None) is None
    slot.set(1)
    slot.set({"a": 2})
    assert slot.since(None) == slot.since(1) == Delta("replace", 2, {"a": 2})
    assert slot.since(2) is None
    assert slot.since(99) is not None, "a version that never was is not the newest"


def test_a_reader_that_has_missed_too_much_gets_a_snapshot() -> None:
    ring = RowBuffer(3)
    ring.extend({"n": number} for number in range(10))
    assert ring.since(7) == Delta("append", 10, {"columns": {"n": [7, 8, 9]}, "size": 3})
    assert ring.since(6) == Delta("snapshot", 10, {"columns": {"n": [7, 8, 9]}, "size": 3})
    assert ring.since(11) == Delta("snapshot", 10, {"columns": {"n": [7, 8, 9]}, "size": 3})
    assert ring.newest(2) == [{"n": 8}, {"n": 9}]


def test_channels_by_name() -> None:
    channels = Channels()
    assert channels.slot("state") is channels.slot("state")
    assert channels.row_buffer("events", 5) is channels.row_buffer("events", 5)
    assert channels.names() == ["state", "events"]
    assert channels.get("nothing") is None
    assert Channels().epoch != channels.epoch
    channels.set_problem("tail:x", "no such topic")
    assert channels.problems() == {"tail:x": "no such topic"}
    channels.set_problem("tail:x", None)
    assert not channels.problems()
    ring = channels.row_buffer("tail:x", 5)
    channels.set_problem("tail:x", "no broker")
    assert channels.problems() == {"tail:x": "no broker"}
    ring.append({"value": "it is back"})
    assert not channels.problems()


def test_many_writers_and_readers() -> None:
    ring, copies = RowBuffer(50), [Copy() for _ in range(4)]
    over = threading.Event()

    def write(who: int) -> None:
        for number in range(500):
            ring.append({"who": who, "n": number})

    def read(copy: Copy) -> None:
        while not over.is_set():
            copy.apply(ring.since(copy.version))

    writers = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    readers = [threading.Thread(target=read, args=(copy,)) for copy in copies]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    for thread in readers:
        thread.join()
    assert ring.version == 2000
    for copy in copies:
        copy.apply(ring.since(copy.version))
        assert copy.columns == (ring.since(None) or Delta("", 0, {})).data["columns"]
