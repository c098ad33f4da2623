"""Batches that are cut by event time, so that the partitions of a source stay together.

Spark's watermark follows the newest record of any partition. If each partition gives a share of its backlog to a
batch, one partition may be hours ahead of another, whose records are late then although they came in time.

- `EventTime` finds the event time of records: of a column, or that which the system has given the record.
- `earliest` chooses the records of the next batch: those that come first in time over all partitions.
- `WaitingPartitions` releases partitions that have waited for others for too long.

Why no record is late: the key of a record is the newest event time of its partition up to it. A batch takes the
records with the smallest keys. Let the largest key taken be K: every record that is left has a key of K or more, and
so an event time of at least K minus the disorder within its partition. With a disorder up to the delay of the
watermark none is older than the watermark, whatever the size of the batch and however the partitions are filled.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
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
    """How long a partition may keep the others waiting without coming closer to them."""
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


@dataclass
class WaitingPartitions:
    """Partitions that give nothing to a batch, although they have records, because others are behind them in time."""

    idle_after_s: float
    since: dict[Any, tuple[float, int | None]] = field(default_factory=dict)
    """By partition: the time of the clock at which it began to wait, and the event time that was reached, if any."""

    def update(self, waiting: Collection[Any], reached_us: int | None) -> list[Any]:
        """Return the partitions that have waited long enough, while event time went slower than the clock."""
        now = time.monotonic()
        if reached_us is not None:  # event time moves from here on for those that have waited without one
            self.since = {partition: begun for partition, begun in self.since.items() if begun[1] is not None}
        self.since = {partition: self.since.get(partition, (now, reached_us)) for partition in waiting}
        released = []
        for partition, (began, reached) in self.since.items():
            waited = now - began
            moved_us = 0 if reached is None or reached_us is None else reached_us - reached
            if waited > self.idle_after_s and moved_us < waited * 1e6:
                released.append(partition)
        for partition in released:
            del self.since[partition]
        return released

    def shares(
        self, waiting: Collection[Any], reached_us: int | None, sizes: Mapping[Any, int], most: int
    ) -> dict[Any, int]:
        """Return how many of a batch of `most` records come from each partition that has waited long enough.

        A share is in proportion to the records of the partition. The others have what is left of the batch.
        """
        shares: dict[Any, int] = {}
        total, left = sum(sizes.values()), most
        for partition in self.update(waiting, reached_us):
            shares[partition] = min(left, sizes[partition], max(1, most * sizes[partition] // total))
            left -= shares[partition]
        return shares
