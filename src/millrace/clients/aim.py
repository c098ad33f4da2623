"""A topic that records of dead letters are sent to, and what they look like there."""

from __future__ import annotations

import time
from dataclasses import dataclass

import orjson

from millrace.clients.dead import Found
from millrace.clients.letters import REDRIVEN, Headers, Letter
from millrace.clients.records import Record

_FRAMING = 200
"""Bytes that Kafka adds to a record, at most: a batch of one."""
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Aim:
    """A topic that records are sent to."""

    partitions: int
    limit: int
    retention: int
    """Milliseconds that it keeps records; negative is for ever."""

    def record(self, one: Found, fixed: Letter, fix: str | None, *, elsewhere: bool) -> Record:
        """The record as it is sent: as it was, where it was, with a header that says what happened to it."""
        now = round(time.time() * 1000)
        same_place = not elsewhere and fixed.key == one.letter.key and one.letter.partition is not None
        partition = (one.letter.partition or 0) % self.partitions if same_place else None
        # What is nearly as old as what the topic deletes could be gone before it is read.
        old = fixed.timestamp is None or 0 <= self.retention < 2 * (now - fixed.timestamp)
        headers = (*_without_ours(fixed.headers), (REDRIVEN, _provenance(one, fix, now)))
        return Record(fixed.value, fixed.key, now if old else fixed.timestamp, headers, partition)

    def refusal(self, record: Record) -> str | None:
        """Why the topic will not take a record; None when it will."""
        headers = sum(len(name) + len(content or b"") + 10 for name, content in record.headers)
        size = len(record.value or b"") + len(record.key or b"") + headers + _FRAMING
        return f"{size:,} bytes are more than the topic takes ({self.limit:,})" if size > self.limit else None


def _without_ours(headers: Headers) -> Headers:
    return tuple(one for one in headers if one[0] != REDRIVEN)


def _provenance(one: Found, fix: str | None, now: int) -> bytes:
    letter = one.letter
    told = {
        "attempt": letter.attempts + 1,
        "at": now,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp,
        "dead": one.place,
        "reason": letter.reason[:_LONGEST_REASON].encode("utf-8", "backslashreplace").decode("utf-8"),
        "pipeline": letter.pipeline,
        "source": letter.source,
        "fix": fix,
    }
    return orjson.dumps(told)
