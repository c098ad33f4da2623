"""What the tests of feeds share: a sink in memory, a clock in hand, and a strict reader of records."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from millrace.clients.kafka.record import Done, Record
from millrace.connectors.base.record_sink import DeliveryReport, RecordSink, SinkTarget
from millrace.errors import MillraceError


class MemorySink(RecordSink):
    """A list of records; it can be told to refuse everything from some record on."""

    delivery_guarantee = "as long as the test lasts"

    def __init__(self, target: SinkTarget) -> None:
        self.writes: list[Sequence[Record]] = []
        self.taken = 0
        self.dones: list[Done | None] = []
        self.closed = 0
        self.refuse_from: int | None = None
        self.reason: MillraceError | None = None

    @property
    def records(self) -> list[Record]:
        return [record for write in self.writes for record in write]

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        assert not self.closed
        self.writes.append(records)
        self.taken += len(records)
        self.dones.append(done)

    def tally(self) -> DeliveryReport:
        good = self.taken if self.refuse_from is None else min(self.taken, self.refuse_from)
        return DeliveryReport(good, self.taken - good, self.reason if self.taken > good else None)

    def close(self) -> DeliveryReport:
        self.closed += 1
        return self.tally()


class HandClock:
    """A clock that moves only when something waits, or when it is told to."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self.waits.append(seconds)
        self.time += seconds


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink(SinkTarget())


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def is_time(value: object) -> bool:
    if not isinstance(value, str) or not TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


IS_OF: dict[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "digits": lambda value: isinstance(value, str) and value.isdigit(),
    "timestamp": is_time,
    "double": lambda value: isinstance(value, float) and math.isfinite(value),
    "int": lambda value: is_whole(value) and abs(value) < 2**31,
    "bigint": lambda value: is_whole(value) and abs(value) < 2**63,
    "array<string>": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
}
NULLABLE = {"reply_to", "battery"}


def refuse(text: str) -> None:
    raise ValueError(text)


def misfit(schema: str, value: bytes | None) -> str | None:
    """Why a value is not a JSON object with exactly these columns, read as strictly as can be."""
    columns = dict(column.rsplit(" ", 1) for column in schema.split(", "))
    try:
        row = json.loads((value or b"").decode("utf-8"), parse_constant=refuse)
    except ValueError as error:
        return str(error)
    if not isinstance(row, dict) or list(row) != list(columns):
        return "other columns"
    wrong = [
        name
        for name, kind in columns.items()
        if not (IS_OF[kind](row[name]) or (row[name] is None and name in NULLABLE))
    ]
    return ", ".join(wrong) or None


@pytest.fixture(name="misfit")
def _misfit() -> Callable[[str, bytes | None], str | None]:
    return misfit
