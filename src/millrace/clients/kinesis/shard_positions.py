"""How far the shards of a stream are read, also as JSON; positions follow the splits and merges of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.clients.kinesis.client import Shard, Stream


@dataclass(frozen=True)
class ShardPosition:
    """Where the reading of one shard is."""

    after: str | None = None
    """The last sequence number that was read; None before the first."""
    first: str | None = None
    """The first one of the batch that `after` ends: with both, the batch is found again."""
    since: int | None = None
    """Before the first record: begin with those that came at this time, in milliseconds; None for the oldest."""
    seen: int = 0
    """What came before this time is read, or was not asked for; what is trimmed after it is lost."""
    ended: bool = False
    """Whether the shard was closed by a split or a merge, and is read to its end."""

    def to_json(self) -> dict[str, Any]:
        """Return it for JSON, without empty fields."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


@dataclass(frozen=True)
class ShardReadLimit:
    """How far a stream is read."""

    stream: str
    created: int
    """When the stream was made: positions in another one of its name mean nothing."""
    since: int | None = None
    """Where its reading began; None at the oldest records."""
    shards: Mapping[str, ShardPosition] = field(default_factory=dict)
    """None before the first look at them."""

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "created": self.created,
            **({} if self.since is None else {"since": self.since}),
            "shards": {name: position.to_json() for name, position in sorted(self.shards.items())},
        }

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ShardReadLimit:
        shards = {name: ShardPosition(**position) for name, position in fields["shards"].items()}
        return cls(fields["stream"], fields["created"], fields.get("since"), shards)

    def is_of(self, stream: Stream) -> bool:
        """Whether the stream is still the one that was read."""
        return abs(self.created - stream.created) < 1000  # some services have seconds only

    def grown(self, listed: Sequence[Shard], now: int) -> ShardReadLimit:
        """With shards that are listed for the first time; without those that are read to their end and listed no more.

        The first look takes all shards from where the reading begins. What appears later are the children of shards
        that were there, and they are read from their oldest record.
        """
        since = None if self.shards else self.since
        names = {shard.id for shard in listed}
        kept = {name: position for name, position in self.shards.items() if not position.ended or name in names}
        new = {shard.id: ShardPosition(since=since, seen=now) for shard in listed if shard.id not in self.shards}
        return replace(self, shards={**kept, **new})

    def waiting(self, listed: Sequence[Shard]) -> set[str]:
        """The shards whose parents are not read to their end: their records come after those."""
        unread = {name for name, position in self.shards.items() if not position.ended}
        return {shard.id for shard in listed if unread.intersection(shard.parents)}

    def childless(self, listed: Sequence[Shard]) -> set[str]:
        """Shards that have ended and whose children are not listed yet: there are some, for nobody closes the last."""
        parents = {parent for shard in listed for parent in shard.parents}
        return {name for name, position in self.shards.items() if position.ended and name not in parents}


@dataclass(frozen=True)
class SequenceRange:
    """Records of one shard, from one sequence number to another, both included."""

    shard: str
    first: str
    last: str


def records_between(start: ShardReadLimit, end: ShardReadLimit) -> list[SequenceRange]:
    """The records that were read on the way from one reach to another, in an order that is always the same."""
    return [
        SequenceRange(name, position.first, position.after)
        for name, position in sorted(end.shards.items())
        if position.after is not None and position.first is not None
        if position.after != start.shards.get(name, ShardPosition()).after
    ]
