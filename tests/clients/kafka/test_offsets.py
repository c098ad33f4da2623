"""Where a time begins in partitions of which something is gone, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import offsets
from millrace.clients.kafka.offsets import start_offsets
from millrace.errors import OffsetsGone

PLACE = ("posts", 0)
CLUSTER: Any = None


def partition(monkeypatch: pytest.MonkeyPatch, first: int, end: int, records: dict[int, int]) -> None:
    """One whose records have these times by their offsets."""

    def ask(_: object, wanted: object, spec: Any, *, committed: bool = False) -> dict[tuple[str, int], int]:
        del wanted, committed
        if spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            return {PLACE: first if spec == OffsetSpec.earliest() else end}
        return {PLACE: min((offset for offset, at in records.items() if at >= spec._value), default=-1)}

    monkeypatch.setattr(offsets, "list_offsets", ask)


def test_a_beginning_that_is_gone_is_told_also_where_offsets_have_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    partition(monkeypatch, 8, 20, {10: 5000, 12: 6000})  # 8 and 9 are ends of transactions
    with pytest.raises(OffsetsGone, match="starts at offset 8"):
        start_offsets(CLUSTER, [PLACE], datetime.fromtimestamp(1, UTC))
    assert start_offsets(CLUSTER, [PLACE], datetime.fromtimestamp(6, UTC)) == {PLACE: 12}
    assert start_offsets(CLUSTER, [PLACE], datetime.fromtimestamp(9, UTC)) == {PLACE: 20}


def test_a_time_before_everything_is_the_beginning_where_nothing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    partition(monkeypatch, 0, 20, {3: 5000})
    assert start_offsets(CLUSTER, [PLACE], datetime.fromtimestamp(1, UTC)) == {PLACE: 3}
