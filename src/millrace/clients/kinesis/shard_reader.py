"""Reads the newest records of a stream: threads read every shard ahead, and a batch takes what has been read.

- `ShardReader` handles shards that are split, merged or closed, and records that are aggregated by KPL.
- `read_again` reads a range of sequence numbers once more, for a batch that is repeated.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol

from millrace.clients.kinesis.client import CONNECTIONS, Kinesis, Shard, boto_time, code_of, is_busy, is_transient
from millrace.clients.kinesis.shard_positions import SequenceRange, ShardPosition, ShardReadLimit
from millrace.errors import MillraceError, RecordsGone

Record = dict[str, Any]
"""As boto3 gives it: Data, PartitionKey, SequenceNumber, ApproximateArrivalTimestamp."""

MAX_RECORDS = 10_000
"""Records that one request may ask for."""
_MAX_BUFFER_BYTES = 48 * 1024 * 1024
"""Bytes that are read ahead, of all shards: then nobody asks for more until some are taken."""
_LIST_INTERVAL_S, _MIN_LIST_INTERVAL_S = 60.0, 0.5
_MIN_RETRY_DELAY_S, _MAX_RETRY_DELAY_S = 0.1, 5.0
_RETENTION_MARGIN_MS = 300_000
"""Milliseconds by which clocks may differ."""
_LISTING = ""
"""Stands for the list of shards where the names of shards do."""
_LOG = logging.getLogger("millrace.kinesis")


@dataclass
class _ShardState:
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
    is_at_end: bool = False
    """Whether the last answer had everything up to the end."""
    caught: float = 0.0
    """When it was last asked for more and had nothing newer, in seconds since 1970."""
    pause: float = 0.0
    failing: float | None = None
    """Since when the service has refused."""


class RecordOrder(Protocol):
    """Decides which of the records that are held come next."""

    def note_times(self, records: Sequence[Record]) -> None:
        """Write to records that have just come what `counts` needs; called in the threads that read."""

    def counts(self, held: Mapping[str, Sequence[Record]], going_on: Collection[str], most: int) -> dict[str, int]:
        """Return how many records of each shard come next; shards that are `going_on` have more than is held."""


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
        skip_lost: bool = False,
        until: int | None = None,
        order: RecordOrder | None = None,
    ) -> None:
        self._door, self._poll, self._most = door, poll, min(most, MAX_RECORDS)
        self._skip_lost, self._until, self._order = skip_lost, until, order
        self._stream = door.stream(start.stream)
        self._reach = self._same(start)
        self._listed: list[Shard] = []
        self._shard_states: dict[str, _ShardState] = {}
        self._taken: dict[str, list[Record]] = {}
        self._changed = threading.Condition()
        self._due: list[tuple[float, str]] = []
        self._held = 0
        self._failure: BaseException | None = None
        self._over = False
        self._list()
        for number in range(min(CONNECTIONS, max(2, len(self._shard_states)))):
            threading.Thread(target=self._work, name=f"kinesis-{number}", daemon=True).start()

    @property
    def reach(self) -> ShardReadLimit:
        """How far it has been taken."""
        return self._reach

    @property
    def listed(self) -> dict[str, Shard]:
        """The shards as they were listed last."""
        with self._changed:
            return {shard.id: shard for shard in self._listed}

    def take(self, most: int | None = None) -> ShardReadLimit:
        """Move on over buffered records, at most `most`: the earliest of all shards, or evenly by shard."""
        with self._changed:
            self._require_well()
            most = sum(len(shard.records) for shard in self._shard_states.values()) if most is None else most
            counts = self._even_counts(most) if self._order is None else self._ordered_counts(self._order, most)
            positions, self._taken = dict(self._reach.shards), {}
            for name, count in counts.items():
                positions[name] = self._handed_out(self._shard_states[name], count)
            ended = [name for name in self._shard_states if positions[name].ended]
            self._reach = replace(self._reach, shards=positions)
            for name in ended:
                del self._shard_states[name]
            if ended:
                self._open_children()
                self._again(_LISTING, 0.0)
            self._changed.notify_all()
            return self._reach

    def _even_counts(self, left: int) -> dict[str, int]:
        shards = sorted(self._shard_states.values(), key=lambda shard: len(shard.records))
        counts = {}
        for number, shard in enumerate(shards):  # the fuller ones last: they get what the others leave
            counts[shard.shard] = min(len(shard.records), -(-left // (len(shards) - number)))
            left -= counts[shard.shard]
        return counts

    def _ordered_counts(self, order: RecordOrder, most: int) -> dict[str, int]:
        held = {name: list(shard.records) for name, shard in self._shard_states.items()}
        # What follows the last record of a closed shard is in its children, which are opened when it is taken.
        going_on = {name for name, shard in self._shard_states.items() if shard.closed or not shard.is_at_end}
        return order.counts(held, going_on, most)

    def taken(self, span: SequenceRange) -> list[Record] | None:
        """The records of a span, where it is what was taken last."""
        records = self._taken.get(span.shard)
        same = records and (records[0]["SequenceNumber"], records[-1]["SequenceNumber"]) == (span.first, span.last)
        return records if same else None

    def wait(self, seconds: float, *, first: bool = False) -> bool:
        """Until there is something to take; raises what has ended the reading.

        With `first` not for longer than it takes to see that every shard has nothing.
        """

        def is_over() -> bool:
            shards = self._shard_states.values()
            is_empty = first and all(shard.caught or shard.late for shard in shards)
            return bool(self._failure) or (self._has_more() and self._is_ordered()) or is_empty

        with self._changed:
            self._changed.wait_for(is_over, seconds)
            self._require_well()
            return self._has_more() and self._is_ordered()

    def is_caught_up(self, since: float) -> bool:
        """Whether all that came before a time (in seconds since 1970) is taken."""
        with self._changed:
            self._require_well()
            done = {name for name, shard in self._shard_states.items() if not shard.records and shard.late}
            for listed in sorted(self._listed, key=lambda shard: shard.id):
                if done.intersection(listed.parents):  # what children have came after all of a parent's
                    done.add(listed.id)
            for name, shard in self._shard_states.items():
                if shard.caught >= since and not shard.records and not shard.closed:
                    done.add(name)
            left = {name for name, position in self._reach.shards.items() if not position.ended} - done
            return not left and not self._reach.childless(self._listed)

    def close(self) -> None:
        """Let the threads end."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _same(self, start: ShardReadLimit) -> ShardReadLimit:
        if start.is_of(self._stream):
            return start
        what = f"stream {start.stream!r} was deleted and created again since it was read"
        if not self._skip_lost:
            why = "the sequence numbers that are known are those of other records"
            raise RecordsGone(what, why=why, hint=_hint("start from scratch with another --state"))
        _LOG.warning("%s: it is read from its oldest record", what)
        return ShardReadLimit(start.stream, self._stream.created)

    def _list(self) -> None:
        listed = self._door.shards(self._stream.name)
        with self._changed:
            self._listed = listed
            self._reach = self._reach.grown(listed, int(time.time() * 1000))
            self._open_children()
            soon = self._reach.childless(listed)
            self._again(_LISTING, _MIN_LIST_INTERVAL_S if soon else _LIST_INTERVAL_S)

    def _open_children(self) -> None:
        """Begin to read what no longer waits for its parents."""
        waiting = self._reach.waiting(self._listed)
        for name, position in self._reach.shards.items():
            if not position.ended and name not in waiting and name not in self._shard_states:
                self._shard_states[name] = _ShardState(name, position, newest=position.after)
                self._again(name, 0.0)

    def _handed_out(self, shard: _ShardState, count: int) -> ShardPosition:
        taken = [shard.records.popleft() for _ in range(count)]
        position = shard.position
        if taken:
            size = sum(len(record["Data"]) for record in taken) if shard.records else shard.size
            shard.size -= size
            self._held -= size
            self._taken[shard.shard] = taken
            position = ShardPosition(taken[-1]["SequenceNumber"], taken[0]["SequenceNumber"], seen=arrived(taken[-1]))
        if not shard.records and shard.closed:
            position = replace(position, ended=True, since=None)
        # That nothing came is worth noting only now and then: each note is a batch.
        elif not shard.records and shard.caught * 1000 > position.seen + (0 if taken else self._stream.retention / 4):
            position = replace(position, seen=max(position.seen, int(shard.caught * 1000)))
        shard.position = position
        return position

    def _has_more(self) -> bool:
        quiet = self._stream.retention / 4
        return any(
            shard.records or shard.closed or shard.caught * 1000 > shard.position.seen + quiet
            for shard in self._shard_states.values()
        )

    def _is_ordered(self) -> bool:
        """Whether enough is known to say which records come first: all shards, and something of each."""
        if self._order is None:
            return True
        is_known = all(shard.records or shard.is_at_end for shard in self._shard_states.values())
        return is_known and not self._reach.childless(self._listed)

    def _require_well(self) -> None:
        if self._failure:
            raise self._failure

    def _again(self, name: str, seconds: float) -> None:
        if name == _LISTING:  # scheduled once: each schedule repeats itself
            self._due = [(at, due) for at, due in self._due if due != _LISTING]
        self._due.append((time.monotonic() + seconds, name))
        self._changed.notify_all()

    def _work(self) -> None:
        while (name := self._next()) is not None:
            try:
                if name == _LISTING:
                    self._list()
                elif (shard := self._shard_states.get(name)) is not None:
                    self._read(shard)
            except BaseException as error:  # raised by the next `take` or `wait`; reading ends here
                with self._changed:
                    self._failure = self._failure or error
                    self._changed.notify_all()

    def _next(self) -> str | None:
        """What is due; None when it is over."""
        with self._changed:
            while not self._over and not self._failure:
                due = [entry for entry in self._due if self._has_room(entry[1])]
                if not due:
                    self._changed.wait()
                    continue
                first = min(due)
                if (wait := first[0] - time.monotonic()) > 0:
                    self._changed.wait(wait)
                else:
                    self._due.remove(first)
                    return first[1]
            return None

    def _has_room(self, name: str) -> bool:
        """Whether more may be read ahead of a shard: always where nothing is, as others may wait for it."""
        shard = self._shard_states.get(name)
        return self._held < _MAX_BUFFER_BYTES or shard is None or not shard.records

    def _read(self, shard: _ShardState) -> None:
        asked = time.time()
        try:
            if shard.iterator is None:
                shard.iterator = self._iterator(shard)
            answer = self._door.client().get_records(ShardIterator=shard.iterator, Limit=self._most)
        except Exception as error:
            self._refused(shard, error)
            return
        proven, until = self._proven(shard, answer), self._until
        records = proven if until is None else list(takewhile(lambda record: arrived(record) <= until, proven))
        if self._order is not None:
            self._order.note_times(records)
        with self._changed:
            shard.iterator, shard.failing, shard.pause = answer.get("NextShardIterator"), None, 0.0
            shard.late = len(records) < len(proven)
            shard.closed = shard.iterator is None and not shard.late
            shard.records.extend(records)
            size = sum(len(record["Data"]) for record in records)
            shard.size += size
            self._held += size
            if records:
                shard.newest = records[-1]["SequenceNumber"]
            # A full answer is never the last one, although emulators mark it so.
            at_the_end = not answer.get("MillisBehindLatest") and len(answer["Records"]) < self._most
            if at_the_end and not shard.late:
                shard.caught = asked
            shard.is_at_end = at_the_end or shard.late or shard.closed
            if not shard.closed and not shard.late:
                self._again(shard.shard, self._poll if at_the_end else 0.0)
            self._changed.notify_all()

    def _iterator(self, shard: _ShardState) -> str:
        start: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        old = shard.position.seen + self._stream.retention < time.time() * 1000 + _RETENTION_MARGIN_MS
        if shard.newest is not None:
            shard.proof = old and shard.newest == shard.position.after
            kind = "AT_SEQUENCE_NUMBER" if shard.proof else "AFTER_SEQUENCE_NUMBER"
            start = {"ShardIteratorType": kind, "StartingSequenceNumber": shard.newest}
        elif old:
            self._lost(shard)
        elif shard.position.since is not None:
            start = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": boto_time(shard.position.since)}
        answer = self._door.client().get_shard_iterator(StreamName=self._stream.name, ShardId=shard.shard, **start)
        return str(answer["ShardIterator"])

    def _proven(self, shard: _ShardState, answer: Any) -> list[Record]:
        """The records of an answer; raises where those before them are gone that were not read."""
        records: list[Record] = answer["Records"]
        if not shard.proof or (not records and answer.get("MillisBehindLatest") and answer.get("NextShardIterator")):
            return records
        shard.proof = False
        if records and records[0]["SequenceNumber"] == shard.position.after:
            return records[1:]
        self._lost(shard)
        return records

    def _lost(self, shard: _ShardState) -> None:
        place = f"after {shard.position.after}" if shard.position.after else "first"
        what = f"stream {self._stream.name!r}, {shard.shard}: what came {place} may be gone"
        if not self._skip_lost:
            kept, since = self._stream.retention // 3_600_000, boto_time(shard.position.seen)
            why = f"Kinesis keeps records for {kept} h, and nobody has looked since {since:%F %T} UTC"
            raise RecordsGone(what, why=why, hint=_hint("raise the retention of the stream for the next time"))
        _LOG.warning("%s: reading continues with the records that are left", what)

    def _refused(self, shard: _ShardState, error: Exception) -> None:
        """Schedule a retry with a growing delay; raise if a retry is useless, or the timeout has passed."""
        doing = f"read {shard.shard} of stream {self._stream.name!r}"
        code, now = code_of(error), time.monotonic()
        if code == "ResourceNotFoundException" and shard.shard not in self.listed:
            self._lost(shard)  # it was deleted with all that was in it
            with self._changed:
                shard.closed = True
                self._changed.notify_all()
            return
        if code == "ExpiredIteratorException":
            shard.iterator = None
            pause = 0.0
        elif is_transient(error) or (code == "InvalidArgumentException" and "cannot be greater than" in str(error)):
            shard.failing = shard.failing or now
            if now - shard.failing > self._door.patience:
                raise self._door.explain(error, doing, now - shard.failing) from error
            shard.iterator = shard.iterator if is_busy(error) else None
            shard.pause = min(2 * shard.pause, _MAX_RETRY_DELAY_S) or _MIN_RETRY_DELAY_S
            pause = shard.pause * random.uniform(0.5, 1.0)
        else:
            raise self._door.explain(error, doing) from error
        with self._changed:
            self._again(shard.shard, pause)


def read_again(door: Kinesis, stream: str, span: SequenceRange, *, skip_lost: bool = False) -> list[Record]:
    """The records of a span, as they were read before; raises where they are no longer there."""
    doing = f"read {span.shard} of stream {stream!r} again"
    client, last = door.client(), int(span.last)
    records: list[Record] = []

    def iterator() -> Any:
        kind = "AFTER_SEQUENCE_NUMBER" if records else "AT_SEQUENCE_NUMBER"
        start = {"ShardIteratorType": kind, "StartingSequenceNumber": _last_number(records) or span.first}
        return client.get_shard_iterator(StreamName=stream, ShardId=span.shard, **start)["ShardIterator"]

    at = door.call_with_retries(iterator, doing)
    while at is not None and int(_last_number(records) or -1) < last:
        try:
            answer = door.call_with_retries(client.get_records, doing, ShardIterator=at, Limit=MAX_RECORDS)
        except MillraceError as error:
            if error.__cause__ is None or code_of(error.__cause__) != "ExpiredIteratorException":
                raise
            at = door.call_with_retries(iterator, doing)
            continue
        records += [record for record in answer["Records"] if int(record["SequenceNumber"]) <= last]
        beyond = int(_last_number(answer["Records"]) or -1) > last
        quiet = not answer["Records"] and not answer.get("MillisBehindLatest")
        at = None if beyond or quiet else answer.get("NextShardIterator")
    whole = records and (records[0]["SequenceNumber"], records[-1]["SequenceNumber"]) == (span.first, span.last)
    if not whole and not skip_lost:
        raise RecordsGone(
            f"stream {stream!r}, {span.shard}: not all records from {span.first} to {span.last} are there any more",
            why="a batch that was begun must be read again, and Kinesis has deleted a part of it",
            hint=_hint("start from scratch with another --state"),
        )
    return records


def _last_number(records: list[Record]) -> str | None:
    return records[-1]["SequenceNumber"] if records else None


def arrived(record: Record) -> int:
    """Return when a record came, in milliseconds since 1970."""
    return int(record["ApproximateArrivalTimestamp"].timestamp() * 1000)


def _hint(other: str) -> str:
    go_on = "set `on_data_loss: continue` on the source (in a DStream program spark.millrace.kinesis.lost=go_on)"
    return f"to continue with the records that are left {go_on}; or {other}"
