"""Ends of batches that are cut by event time (`connectors.base.batch_alignment`), for the bulk source.

A topic does not say which event times its records have, so the process that plans batches looks ahead:

- Small batches: the event time of each record is read once and kept until the record is in a batch. The cut is exact.
- Large ones: some records of each partition give an estimate of the event time up to which a batch can go. Only
  the records whose time is within the watermark's delay of it are read to find where each partition passes it. Where
  Kafka's own times serve, the headers of all record batches are read for later ones; to decode all records would cost
  a fifth of what the query takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from millrace.clients.kafka.bulk_fetch import Address, FetchRange, fetch_newest_times, fetch_records
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import PartitionId
from millrace.clients.kafka.record_batch import RecordColumns
from millrace.connectors.base.batch_alignment import NO_TIME, EventTime, Times, WaitingPartitions, earliest

PartitionOffsets = Mapping[PartitionId, int]
_MAX_EXACT_RECORDS = 400_000
"""Up to how many records are looked at to cut one batch exactly."""
_LEAST_AHEAD_RECORDS = 5_000
"""How many records of a partition are at least looked at in one go."""
_SAMPLES = 32
"""How many places of each partition give the estimate for a large batch."""
_SAMPLE_RECORDS = 16
_MAX_ESTIMATES = 4
_FILLED = 0.9
"""How much of what a batch may have is aimed at by an estimate."""


@dataclass
class _Ahead:
    """The event times of the next records of a partition, in the order of their offsets."""

    offsets: Times = field(default_factory=lambda: np.empty(0, np.int64))
    times: Times = field(default_factory=lambda: np.empty(0, np.int64))
    end: int = 0
    """The offset up to which records are known."""

    def drop_before(self, offset: int) -> None:
        """Forget records that are in a batch now."""
        if offset > self.end or (len(self.offsets) == 0 and offset != self.end):
            self.offsets, self.times, self.end = self.offsets[:0], self.times[:0], offset
        elif kept := int(np.searchsorted(self.offsets, offset)):
            self.offsets, self.times = self.offsets[kept:], self.times[kept:]


@dataclass(frozen=True)
class _Samples:
    """Some records of the part of a partition from which a batch may take."""

    start: int
    stop: int
    places: Times
    """Their offsets."""
    newest: Times
    """The newest event time that is known of the records up to each."""
    whole: bool
    """Whether the partition has nothing behind that part."""

    def count(self, until: int) -> float:
        """Return about how many records come before the first one after an event time."""
        if not len(self.newest) or until >= self.newest[-1]:
            return self.stop - self.start
        return float(np.interp(until, self.newest.astype(np.float64), (self.places - self.start).astype(np.float64)))


@dataclass
class AlignedBatches:
    """Finds the end of each batch of one query."""

    cluster: Cluster
    event_time: EventTime
    committed: bool = True
    skip_lost: bool = False
    reached_us: int | None = None
    """The newest event time of the batches that were cut; None without any, and where a batch reads everything."""
    waiting: list[PartitionId] = field(default_factory=list)
    """The partitions that gave nothing to the last batch because others were behind them in time."""
    _ahead: dict[PartitionId, _Ahead] = field(default_factory=dict)
    _leaders: Mapping[PartitionId, Address | None] = field(default_factory=dict)
    _waiting: WaitingPartitions = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = WaitingPartitions(self.event_time.idle_after_s)

    def cut(
        self,
        begin: PartitionOffsets,
        ends: PartitionOffsets,
        most: int,
        leaders: Mapping[PartitionId, Address | None],
        *,
        strict: bool,
    ) -> dict[PartitionId, int]:
        """Return end offsets for a batch of about `most` records; never more if `strict`."""
        self._leaders = leaders
        unread = {partition: (begin.get(partition, 0), end) for partition, end in ends.items()}
        unread = {partition: span for partition, span in unread.items() if span[1] > span[0]}
        chosen = self._chosen(unread, most, strict=strict)
        at = {partition: start for partition, (start, _) in unread.items()}
        taken = [partition for partition in at if chosen[partition] > at[partition]]
        if released := self._waiting.released(at, defaultdict(int, ends), taken, self.reached_us):
            spans = {partition: (at[partition], end) for partition, end in released.items()}
            share = min(most, sum(end - start for start, end in spans.values()))
            chosen = self._chosen(spans, share, strict=strict)
            others = {partition: span for partition, span in unread.items() if partition not in spans}
            chosen |= self._chosen(others, most - share, strict=strict)
        self.waiting = [partition for partition in at if chosen[partition] == at[partition]]
        return {**ends, **chosen}

    def _chosen(
        self, unread: Mapping[PartitionId, tuple[int, int]], most: int, *, strict: bool
    ) -> dict[PartitionId, int]:
        """Return the ends of a batch whose records come first in time."""
        chosen = None
        if sum(min(end - start, most) for start, end in unread.values()) > _MAX_EXACT_RECORDS:
            chosen = self._estimated(unread, most, strict=strict)
        return self._exact(unread, min(most, _MAX_EXACT_RECORDS)) if chosen is None else chosen

    def all_read(self) -> None:
        """A batch reads everything: nobody waits."""
        self.reached_us = None
        self.waiting = []
        self._ahead.clear()
        self._waiting.reset()

    def _exact(self, unread: Mapping[PartitionId, tuple[int, int]], most: int) -> dict[PartitionId, int]:
        """Return these ends by the event time of each record."""
        known = {partition: self._looked_ahead(partition, *span, most) for partition, span in unread.items()}
        counts, reached = earliest({partition: ahead.times[:most] for partition, ahead in known.items()}, most)
        self.reached_us = self.reached_us if reached is None else reached
        return {partition: _end(known[partition], counts[partition], *span) for partition, span in unread.items()}

    def _looked_ahead(self, partition: PartitionId, start: int, stop: int, most: int) -> _Ahead:
        """Return the event times of the next `most` records before `stop`, or of more, or of all."""
        ahead = self._ahead.setdefault(partition, _Ahead())
        ahead.drop_before(start)
        while ahead.end < stop and len(ahead.offsets) < most:
            until = min(stop, ahead.end + max(most - len(ahead.offsets), _LEAST_AHEAD_RECORDS))
            offsets, times = self._times(partition, ahead.end, until)
            ahead.offsets = np.concatenate([ahead.offsets, offsets])
            ahead.times = np.concatenate([ahead.times, times])
            ahead.end = until
        return ahead

    def _estimated(
        self, unread: Mapping[PartitionId, tuple[int, int]], most: int, *, strict: bool
    ) -> dict[PartitionId, int] | None:
        """Return the ends of a large batch by samples; None if that does not lead to one."""
        samples = {
            partition: self._samples(partition, start, end, min(end, start + most))
            for partition, (start, end) in unread.items()
        }
        wanted = most * _FILLED
        for _ in range(_MAX_ESTIMATES):
            until = _time_for(samples.values(), wanted)
            if until is None:
                return None
            ends = {partition: self._passes(partition, until, sampled) for partition, sampled in samples.items()}
            count = sum(ends[partition] - start for partition, (start, _) in unread.items())
            if count and (count <= most or not strict):
                self.reached_us = until
                return ends if self.event_time.format else self._without_later(unread, ends, until)
            wanted *= _FILLED * most / count if count else 2.0
        return None

    def _samples(self, partition: PartitionId, start: int, end: int, stop: int) -> _Samples:
        places = np.unique(np.linspace(start, stop - 1, _SAMPLES).astype(np.int64))
        newest = np.array(
            [
                self._times(partition, place, min(stop, place + _SAMPLE_RECORDS))[1].max(initial=NO_TIME)
                for place in places.tolist()
            ],
            np.int64,
        )
        # A place in a gap, or among records without a time, says nothing of the records before it.
        timed = newest > NO_TIME
        return _Samples(start, stop, places[timed], np.maximum.accumulate(newest[timed]), whole=stop == end)

    def _passes(self, partition: PartitionId, until: int, samples: _Samples) -> int:
        """Return the offset of the first record after an event time; the last that may be read if there is none.

        Records before one that is older than that time by more than the delay are not looked at: they would be late.
        """
        earlier = int(np.searchsorted(samples.newest, until - self.event_time.delay_us)) - 1
        at = int(samples.places[earlier]) if earlier >= 0 else samples.start
        while at < samples.stop:
            next_at = min(samples.stop, at + _LEAST_AHEAD_RECORDS)
            offsets, times = self._times(partition, at, next_at)
            after = np.flatnonzero(times > until)
            if len(after):
                return int(offsets[after[0]])
            at = next_at
        return samples.stop

    def _without_later(
        self, unread: Mapping[PartitionId, tuple[int, int]], ends: Mapping[PartitionId, int], until: int
    ) -> dict[PartitionId, int]:
        """Return ends that are before the first record that arrived after a time, also between samples."""
        return {
            partition: self._first_later(partition, unread[partition][0], end, until) for partition, end in ends.items()
        }

    def _first_later(self, partition: PartitionId, start: int, stop: int, until: int) -> int:
        """Return the offset of the first record of a range that arrived after a time; its end if there is none."""
        span = FetchRange(*partition, start, stop, self._leaders.get(partition))
        bounds = fetch_newest_times(self.cluster, span, committed=self.committed, skip_lost=self.skip_lost)
        for first, last, newest_ms in bounds:
            if newest_ms * 1000 > until:
                offsets, times = self._times(partition, max(first, start), min(last + 1, stop))
                if len(after := np.flatnonzero(times > until)):
                    return int(offsets[after[0]])
        return stop

    def _times(self, partition: PartitionId, start: int, stop: int) -> tuple[Times, Times]:
        """Return the offsets and event times of the records of a range."""
        span = FetchRange(*partition, start, stop, self._leaders.get(partition))
        blocks = [
            (records.offsets, self._of(records))
            for records in fetch_records(self.cluster, span, committed=self.committed, skip_lost=self.skip_lost)
            if len(records.offsets)
        ]
        empty = np.empty(0, np.int64)
        return (
            np.concatenate([empty, *(offsets for offsets, _ in blocks)]),
            np.concatenate([empty, *(times for _, times in blocks)]),
        )

    def _of(self, records: RecordColumns) -> Times:
        given = records.times * np.int64(1000)
        return self.event_time.of(records.bytes_of(records.values), given) if self.event_time.format else given


def _end(ahead: _Ahead, count: int, start: int, stop: int) -> int:
    """Return the end offset of a batch that takes the first `count` records of what is known of a partition."""
    if count < len(ahead.offsets):
        return min(int(ahead.offsets[count]), stop) if count else start
    return min(ahead.end, stop)


def _time_for(samples: Collection[_Samples], wanted: float) -> int | None:
    """Return the event time up to which partitions have about as many records as wanted; None if that is not known."""
    timed = [each for each in samples if len(each.newest)]
    if not timed or any(not each.whole and not len(each.newest) for each in samples):
        return None
    low = min(int(each.newest[0]) for each in timed)
    # Nothing is known of a partition beyond its last sample.
    high = min(
        (int(each.newest[-1]) for each in timed if not each.whole), default=max(int(each.newest[-1]) for each in timed)
    )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sum(each.count(middle) for each in samples) <= wanted else (low, middle)
    return low
