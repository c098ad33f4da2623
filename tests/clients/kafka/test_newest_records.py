"""The newest value of a key that lies in several partitions, without a broker."""

from __future__ import annotations

import sqlite3
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.engine.replay import compare


def message(partition: int, at: int, value: bytes) -> Any:
    told = {"key": b"k", "value": value, "partition": partition, "timestamp": (1, at)}
    return SimpleNamespace(**{name: lambda one=one: one for name, one in told.items()})


@pytest.mark.parametrize(
    ("records", "newest"),
    [
        ([message(0, 5, b"new"), message(1, 3, b"old")], b"new"),
        ([message(1, 3, b"old"), message(0, 5, b"new")], b"new"),
        ([message(0, 5, b"first"), message(0, 3, b"second")], b"second"),  # in one partition the order counts
    ],
)
def test_partitions_have_no_order_among_each_other(
    monkeypatch: pytest.MonkeyPatch, records: list[Any], newest: bytes
) -> None:
    monkeypatch.setattr(compare, "committed_records", lambda *_: iter([records]))
    base, cluster = sqlite3.connect(":memory:"), SimpleNamespace()
    row = partial(compare._row, newest=True, json=False)
    loaded = compare._load(base, cluster, "a", "topic", row, lambda _: None)  # type: ignore[arg-type]
    assert loaded == 2
    assert base.execute("SELECT value, n FROM a").fetchall() == [(newest, 2)]
