"""Batches that are cut by event time, so that the partitions of a source stay together.

Spark's watermark follows the newest record of any partition. If each partition gives a share of its backlog to a
batch, one partition may be hours ahead of another, whose records are late then although they came in time.

- `EventTime` finds the event time of records: of a column, or that which the system has given the record.
- `earliest` chooses the records of the next batch: those that come first in time over all partitions.
- `WaitingPartitions` releases partitions whose records would wait for what arrives later and later.

Why no record is late: the key of a record is the newest event time of its partition up to it. A batch takes the
records with the smallest keys. Let the largest key taken be K: every record that is left has a key of K or more, and
so an event time of at least K minus the disorder within its partition. With a disorder up to the delay of the
watermark none is older than the watermark, whatever the size of the batch and however the partitions are filled.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from millrace.formats.base import Decoder, Format
from millrace.pipeline.schema import Schema

Times: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
"""Microseconds since 1970."""
P = TypeVar("P", bound=Hashable)
"""A partition."""
NO_TIME = np.iinfo(np.int64).min
"""The time of a record that has none: it keeps no other waiting."""


@dataclass(frozen=True)
class EventTime:
    """Where the event time of records is; can be pickled."""

    what: str
    """What it is, for people."""
    delay_us: int
    """The delay of the watermark."""
    idle_after_s: float
    """How much later a record may arrive for others to wait for it, where event time moves slower than the clock."""
    format: Format | None = None
    """What decodes records; None: the time that the system has given a record is its event time."""
    schema: Schema | None = None
    column: str = ""
    """The name of the column."""

    def of(self, values: pa.Array, given: Times) -> Times:
        """Return the event time of records by their bytes, and the times that the system has given them."""
        if self.format is None:
            return given
        times = np.full(len(values), NO_TIME, np.int64)
        decoded = self._decoder.decode(values)
        if decoded.rows.num_rows:
            column = decoded.rows.column(self.column)
            moments = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(NO_TIME)
            good = slice(None) if decoded.good is None else decoded.good.to_numpy()
            times[good] = moments.to_numpy(zero_copy_only=False)
        return times

    @cached_property
    def _decoder(self) -> Decoder:
        if self.format is None:
            raise RuntimeError("there is nothing to decode")
        return self.format.decoder(self.schema)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_decoder"}


def earliest(times: Mapping[P, Times], most: int) -> tuple[dict[P, int], int | None]:
    """Return how many records of each partition come first in time, at most `most` in all.

    Also return the newest time among them; None if none has a time. A partition is read in its order: a record counts
    with the newest time that its partition has had up to it.
    """
    keys = {partition: np.maximum.accumulate(own) for partition, own in times.items() if len(own)}
    if not keys or most < 1:
        return dict.fromkeys(times, 0), None
    everything = np.concatenate(list(keys.values()))
    if len(everything) <= most:
        return {partition: len(own) for partition, own in times.items()}, _known(everything.max())
    last = int(np.partition(everything, most - 1)[most - 1])
    counts = {partition: int(np.searchsorted(own, last, "left")) for partition, own in keys.items()}
    same = {partition: int(np.searchsorted(own, last, "right")) - counts[partition] for partition, own in keys.items()}
    left, total = most - sum(counts.values()), sum(same.values())
    for partition, size in same.items():  # each partition its share: many records may have arrived at once
        share = -(-left * size // total) if size else 0
        counts[partition] += share
        left, total = left - share, total - size
    return dict.fromkeys(times, 0) | counts, _known(last)


def _known(time_us: int) -> int | None:
    return int(time_us) if time_us > NO_TIME else None


Positions: TypeAlias = Mapping[P, int]
"""A place in each partition: an offset, or a time of arrival."""


@dataclass
class _Arrivals:
    """What had arrived at a time."""

    clock_s: float
    ends: Positions[Any]
    is_passed: bool = False
    """Whether some partition has been read up to here."""
    low_us: int | None = None
    high_us: int | None = None
    """Bounds of the event time of that."""


@dataclass
class WaitingPartitions:
    """Releases partitions whose records wait for what arrived more than `idle_after` later than they did.

    Waiting for what had arrived before has an end and is never given up, however slow processing is. Waiting for what
    arrives later is not given up either while event time moves there as fast as records arrive.
    """

    idle_after_s: float
    _older: _Arrivals | None = None
    _newer: _Arrivals | None = None
    """What had arrived at least `idle_after` later."""
    _is_released: bool = False
    _reached_us: tuple[int | None, int | None] = (None, None)
    """The event time up to which the batch before the last one was cut, and the last one."""

    def reset(self) -> None:
        """Forget everything: a batch takes all that is there."""
        self._older = self._newer = None
        self._is_released, self._reached_us = False, (None, None)

    def released(
        self, at: Positions[P], arrived: Positions[P], cut: Collection[P], reached_us: int | None
    ) -> dict[P, int]:
        """Return up to which positions partitions may be read although others are behind them in event time.

        `at` is the next record of each partition that has one; `arrived` says up to where they have arrived, of any
        partition. By event time the batch would take records of the partitions in `cut`, up to `reached_us`.
        """
        now = time.monotonic()
        if self._older and all(position >= self._older.ends[partition] for partition, position in at.items()):
            self._older, self._newer, self._is_released = self._newer, None, False
        older = self._older = self._older or _Arrivals(now, arrived)
        if self._newer is None and now - older.clock_s > self.idle_after_s:
            self._newer = _Arrivals(now, arrived)
        for each in (older, self._newer):
            if each and not each.is_passed and any(at[partition] >= each.ends[partition] for partition in cut):
                each.is_passed, (each.low_us, each.high_us) = True, self._reached_us
        self._reached_us = self._reached_us[1], reached_us
        if self._newer is None or not self._newer.is_passed:
            return {}
        if not self._is_released and _keeps_up(older, self._newer):
            self._older, self._newer = self._newer, None
            return {}
        self._is_released = True
        return {partition: older.ends[partition] for partition in at if at[partition] < older.ends[partition]}


def _keeps_up(older: _Arrivals, newer: _Arrivals) -> bool:
    """Return whether event time has moved at least as fast as records have arrived."""
    if newer.high_us is None:
        return False  # no record has an event time
    return older.low_us is None or newer.high_us - older.low_us >= (newer.clock_s - older.clock_s) * 1e6
