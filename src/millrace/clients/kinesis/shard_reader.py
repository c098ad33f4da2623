"""The end of a stream, followed: every shard is read ahead by threads, and handed out from one reach to the next."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Any

from millrace.clients.kinesis.client import CONNECTIONS, Kinesis, Shard, boto_time, code_of, is_busy, is_transient
from millrace.clients.kinesis.shard_positions import SequenceRange, ShardPosition, ShardReadLimit
from millrace.errors import MillraceError, RecordsGone

Record = dict[str, Any]
"""As boto3 gives it: Data, PartitionKey, SequenceNumber, ApproximateArrivalTimestamp."""

MAX_RECORDS = 10_000
"""Records that one request may ask for."""
_AHEAD = 48 * 1024 * 1024
"""Bytes that are read ahead, of all shards: then nobody asks for more until some are taken."""
_RELIST, _RELIST_SOON = 60.0, 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_MARGIN = 300_000
"""Milliseconds by which clocks may differ."""
_LISTING = ""
"""Stands for the list of shards where the names of shards do."""
_LOG = logging.getLogger("millrace.kinesis")


@dataclass
class _ShardState:
    """One shard that is read."""

    shard: str
    position: ShardPosition
    """Before the records that are held."""
    iterator: str | None = None
    records: deque[Record] = field(default_factory=deque)
    size: int = 0
    newest: str | None = None
    """The last sequence number that was read ahead."""
    closed: bool = False
    """Whether nothing comes after the records that are held."""
    proof: bool = False
    """Whether the first record must be the last one that was read: else those between them are gone."""
    late: bool = False
    """Whether what comes next came after the time that is asked for."""
    caught: float = 0.0
    """When it was last asked for more and had nothing newer, in seconds since 1970."""
    pause: float = 0.0
    failing: float | None = None
    """Since when the service has refused."""


class ShardReader:
    """Follows a stream from a reach on. `take` moves on; what was taken is held until the next one is asked for.

    With `until` (in milliseconds since 1970) it leaves alone what came later.
    """

    def __init__(
        self,
        door: Kinesis,
        start: ShardReadLimit,
        *,
        poll: float = 0.25,
        most: int = MAX_RECORDS,
        go_on: bool = False,
        until: int | None = None,
    ) -> None:
        self._door, self._poll, self._most = door, poll, min(most, MAX_RECORDS)
        self._go_on, self._until = go_on, until
        self._stream = door.stream(start.stream)
        self._reach = self._same(start)
        self._listed: list[Shard] = []
        self._lanes: dict[str, _ShardState] = {}
        self._taken: dict[str, list[Record]] = {}
        self._changed = threading.Condition()
        self._due: list[tuple[float, str]] = []
        self._held = 0
        self._failure: BaseException | None = None
        self._over = False
        self._list()
        self._threads = [
            threading.Thread(target=self._work, name=f"kinesis-{number}", daemon=True)
            for number in range(min(CONNECTIONS, max(2, len(self._lanes))))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def reach(self) -> ShardReadLimit:
        """How far it has been taken."""
        return self._reach

    @property
    def listed(self) -> dict[str, Shard]:
        """The shards as they were listed last."""
        with self._changed:
            return {one.id: one for one in self._listed}

    def take(self, most: int | None = None) -> ShardReadLimit:
        """Move on over what is there, at most so many records, each shard its part."""
        with self._changed:
            self._require_well()
            lanes = sorted((one for one in self._lanes.values()), key=lambda one: len(one.records))
            left, positions = most, dict(self._reach.shards)
            self._taken = {}
            for number, lane in enumerate(lanes):  # the fuller ones last: they get what the others leave
                share = len(lane.records) if left is None else min(len(lane.records), -(-left // (len(lanes) - number)))
                positions[lane.shard] = self._handed_out(lane, share)
                left = None if left is None else left - share
            ended = [name for name in self._lanes if positions[name].ended]
            self._reach = replace(self._reach, shards=positions)
            for name in ended:
                del self._lanes[name]
            if ended:
                self._open_children()
                self._again(_LISTING, 0.0)
            self._changed.notify_all()
            return self._reach

    def taken(self, span: SequenceRange) -> list[Record] | None:
        """The records of a span, where it is what was taken last."""
        records = self._taken.get(span.shard)
        same = records and (records[0]["SequenceNumber"], records[-1]["SequenceNumber"]) == (span.first, span.last)
        return records if same else None

    def wait(self, seconds: float) -> bool:
        """Until there is something to take; raises what has ended the reading."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._has_more(), seconds)
            self._require_well()
            return self._has_more()

    def wait_for_first(self, seconds: float) -> bool:
        """The same, though not for longer than it takes to see that every shard has nothing."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._has_more() or self._nothing_there(), seconds)
            self._require_well()
            return self._has_more()

    def is_caught_up(self, since: float) -> bool:
        """Whether all that came before a time (in seconds since 1970) is taken."""
        with self._changed:
            self._require_well()
            done = {name for name, lane in self._lanes.items() if not lane.records and lane.late}
            for one in sorted(self._listed, key=lambda one: one.id):  # what children have came after all of a parent's
                if done.intersection(one.parents):
                    done.add(one.id)
            done |= {
                name
                for name, lane in self._lanes.items()
                if lane.caught >= since and not lane.records and not lane.closed
            }
            left = {name for name, one in self._reach.shards.items() if not one.ended} - done
            return not left and not self._reach.childless(self._listed)

    def close(self) -> None:
        """Let the threads end."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _same(self, start: ShardReadLimit) -> ShardReadLimit:
        if start.is_of(self._stream):
            return start
        what = f"stream {start.stream!r} was deleted and made anew since it was read"
        if not self._go_on:
            why = "the sequence numbers that are known are those of other records"
            raise RecordsGone(what, why=why, hint=_hint("start anew with another --state"))
        _LOG.warning("%s: it is read from its oldest record", what)
        return ShardReadLimit(start.stream, self._stream.created)

    def _list(self) -> None:
        listed = self._door.shards(self._stream.name)
        with self._changed:
            self._listed = listed
            self._reach = self._reach.grown(listed, int(time.time() * 1000))
            self._open_children()
            soon = self._reach.childless(listed)
            self._again(_LISTING, _RELIST_SOON if soon else _RELIST)

    def _open_children(self) -> None:
        """Begin to read what no longer waits for its parents."""
        waiting = self._reach.waiting(self._listed)
        for name, position in self._reach.shards.items():
            if not position.ended and name not in waiting and name not in self._lanes:
                self._lanes[name] = _ShardState(name, position, newest=position.after)
                self._again(name, 0.0)

    def _handed_out(self, lane: _ShardState, count: int) -> ShardPosition:
        taken = [lane.records.popleft() for _ in range(count)]
        position = lane.position
        if taken:
            size = sum(len(one["Data"]) for one in taken) if lane.records else lane.size
            lane.size -= size
            self._held -= size
            self._taken[lane.shard] = taken
            position = ShardPosition(taken[-1]["SequenceNumber"], taken[0]["SequenceNumber"], seen=_arrived(taken[-1]))
        if not lane.records and lane.closed:
            position = replace(position, ended=True, since=None)
        # That nothing came is worth noting only now and then: each note is a batch.
        elif not lane.records and lane.caught * 1000 > position.seen + (0 if taken else self._stream.retention / 4):
            position = replace(position, seen=max(position.seen, int(lane.caught * 1000)))
        lane.position = position
        return position

    def _has_more(self) -> bool:
        quiet = self._stream.retention / 4
        return any(
            lane.records or lane.closed or lane.caught * 1000 > lane.position.seen + quiet
            for lane in self._lanes.values()
        )

    def _nothing_there(self) -> bool:
        return all(lane.caught or lane.late for lane in self._lanes.values())

    def _require_well(self) -> None:
        if self._failure:
            raise self._failure

    def _again(self, name: str, seconds: float) -> None:
        if name == _LISTING:  # due once, however many ask for it: each of them would go on forever
            self._due = [one for one in self._due if one[1] != _LISTING]
            heapify(self._due)
        heappush(self._due, (time.monotonic() + seconds, name))
        self._changed.notify_all()

    def _work(self) -> None:
        while (name := self._next()) is not None:
            try:
                if name == _LISTING:
                    self._list()
                elif (lane := self._lanes.get(name)) is not None:
                    self._read(lane)
            except BaseException as error:  # told to whoever takes or waits next; nothing goes on after it
                with self._changed:
                    self._failure = self._failure or error
                    self._changed.notify_all()

    def _next(self) -> str | None:
        """What is due; None when it is over."""
        with self._changed:
            while not self._over and not self._failure:
                if not self._due or self._held >= _AHEAD:
                    self._changed.wait()
                elif (wait := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(wait)
                else:
                    return heappop(self._due)[1]
            return None

    def _read(self, lane: _ShardState) -> None:
        asked = time.time()
        try:
            if lane.iterator is None:
                lane.iterator = self._iterator(lane)
            answer = self._door.client().get_records(ShardIterator=lane.iterator, Limit=self._most)
        except Exception as error:
            self._refused(lane, error)
            return
        found = self._proven(lane, answer)
        records = found if self._until is None else list(takewhile(self._is_in_time, found))
        with self._changed:
            lane.iterator, lane.failing, lane.pause = answer.get("NextShardIterator"), None, 0.0
            lane.late = len(records) < len(found)
            lane.closed = lane.iterator is None and not lane.late
            lane.records.extend(records)
            size = sum(len(one["Data"]) for one in records)
            lane.size += size
            self._held += size
            if records:
                lane.newest = records[-1]["SequenceNumber"]
            # A full answer is not the last one, whatever it says of itself: emulators say that it is.
            at_the_end = not answer.get("MillisBehindLatest") and len(answer["Records"]) < self._most
            if at_the_end and not lane.late:
                lane.caught = asked
            if not lane.closed and not lane.late:
                self._again(lane.shard, self._poll if at_the_end else 0.0)
            self._changed.notify_all()

    def _is_in_time(self, record: Record) -> bool:
        return self._until is None or _arrived(record) <= self._until

    def _iterator(self, lane: _ShardState) -> str:
        asked: dict[str, Any] = {"StreamName": self._stream.name, "ShardId": lane.shard}
        old = lane.position.seen + self._stream.retention < time.time() * 1000 + _MARGIN
        if lane.newest is not None:
            lane.proof = old and lane.newest == lane.position.after
            kind = "AT_SEQUENCE_NUMBER" if lane.proof else "AFTER_SEQUENCE_NUMBER"
            asked |= {"ShardIteratorType": kind, "StartingSequenceNumber": lane.newest}
        elif old:
            self._lost(lane)
            asked["ShardIteratorType"] = "TRIM_HORIZON"
        elif lane.position.since is not None:
            asked |= {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": boto_time(lane.position.since)}
        else:
            asked["ShardIteratorType"] = "TRIM_HORIZON"
        return str(self._door.client().get_shard_iterator(**asked)["ShardIterator"])

    def _proven(self, lane: _ShardState, answer: Any) -> list[Record]:
        """The records of an answer; raises where those before them are gone that were not read."""
        records: list[Record] = answer["Records"]
        if not lane.proof or (not records and answer.get("MillisBehindLatest") and answer.get("NextShardIterator")):
            return records
        lane.proof = False
        if records and records[0]["SequenceNumber"] == lane.position.after:
            return records[1:]
        self._lost(lane)
        return records

    def _lost(self, lane: _ShardState) -> None:
        place = f"after {lane.position.after}" if lane.position.after else "first"
        what = f"stream {self._stream.name!r}, {lane.shard}: what came {place} may be gone"
        if not self._go_on:
            kept, since = self._stream.retention // 3_600_000, boto_time(lane.position.seen)
            why = f"Kinesis keeps records for {kept} h, and nobody has looked since {since:%F %T} UTC"
            raise RecordsGone(what, why=why, hint=_hint("raise the retention of the stream for the next time"))
        _LOG.warning("%s: it goes on with what is there", what)

    def _refused(self, lane: _ShardState, error: Exception) -> None:
        """Come again later, a little later each time; raises when that has no sense or goes on for too long."""
        doing = f"read {lane.shard} of stream {self._stream.name!r}"
        code, now = code_of(error), time.monotonic()
        if code == "ResourceNotFoundException" and lane.shard not in self.listed:
            self._lost(lane)  # it was deleted with all that was in it
            with self._changed:
                lane.closed = True
                self._changed.notify_all()
            return
        if code == "ExpiredIteratorException":
            lane.iterator = None
            pause = 0.0
        elif is_transient(error) or (code == "InvalidArgumentException" and "cannot be greater than" in str(error)):
            lane.failing = lane.failing or now
            if now - lane.failing > self._door.patience:
                raise self._door.explain(error, doing, now - lane.failing) from error
            lane.iterator = lane.iterator if is_busy(error) else None
            lane.pause = min(2 * lane.pause, _LONGEST_PAUSE) or _FIRST_PAUSE
            pause = lane.pause * random.uniform(0.5, 1.0)
        else:
            raise self._door.explain(error, doing) from error
        with self._changed:
            self._again(lane.shard, pause)


def read_again(door: Kinesis, stream: str, span: SequenceRange, *, go_on: bool = False) -> list[Record]:
    """The records of a span, as they were read before; raises where they are no longer there."""
    doing = f"read {span.shard} of stream {stream!r} again"
    client, last = door.client(), int(span.last)
    asked = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": span.first}
    where = {"StreamName": stream, "ShardId": span.shard}
    found: list[Record] = []

    def iterator() -> Any:
        if not found:
            return client.get_shard_iterator(**where, **asked)["ShardIterator"]
        after = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": found[-1]["SequenceNumber"]}
        return client.get_shard_iterator(**where, **after)["ShardIterator"]

    at = door.call_with_retries(iterator, doing)
    while at is not None and (not found or int(found[-1]["SequenceNumber"]) < last):
        try:
            answer = door.call_with_retries(client.get_records, doing, ShardIterator=at, Limit=MAX_RECORDS)
        except MillraceError as error:
            if error.__cause__ is None or code_of(error.__cause__) != "ExpiredIteratorException":
                raise
            at = door.call_with_retries(iterator, doing)
            continue
        found += [one for one in answer["Records"] if int(one["SequenceNumber"]) <= last]
        beyond = answer["Records"] and int(answer["Records"][-1]["SequenceNumber"]) > last
        quiet = not answer["Records"] and not answer.get("MillisBehindLatest")
        at = None if beyond or quiet else answer.get("NextShardIterator")
    whole = found and (found[0]["SequenceNumber"], found[-1]["SequenceNumber"]) == (span.first, span.last)
    if not whole and not go_on:
        raise RecordsGone(
            f"stream {stream!r}, {span.shard}: not all records from {span.first} to {span.last} are there any more",
            why="a batch that was begun must be read again, and Kinesis has deleted a part of it",
            hint=_hint("start anew with another --state"),
        )
    return found


def _arrived(record: Record) -> int:
    return int(record["ApproximateArrivalTimestamp"].timestamp() * 1000)


def _hint(other: str) -> str:
    go_on = "set `on_data_loss: continue` on the source (in a DStream program spark.millrace.kinesis.lost=go_on)"
    return f"to go on with what is there {go_on}; or {other}"
