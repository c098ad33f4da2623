"""How far an application has read a stream, kept as the Kinesis Client Library keeps it: a lease for each shard.

In DynamoDB it is a table of the application's name, so that the tools of others find what they know; or it is a file.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millrace.atomic_files import write_whole
from millrace.clients.kinesis.client import Kinesis, Shard, Stream, code_of
from millrace.clients.kinesis.shard_positions import ShardPosition, ShardReadLimit
from millrace.errors import FileUnusable, MillraceError, TakenOver

_END, _OLDEST, _AT_TIME = "SHARD_END", "TRIM_HORIZON", "AT_TIMESTAMP"
_BRIEF_S = 1.0


class Leases(ABC):
    """Where an application's leases are."""

    @abstractmethod
    def load(self, stream: Stream) -> ShardReadLimit | None:
        """How far the application is; None when it has never been."""

    @abstractmethod
    def save(self, reach: ShardReadLimit, listed: Mapping[str, Shard], *, briefly: bool = False) -> None:
        """Save how far shards are read; `briefly` limits the time, if it can be saved later."""


@dataclass(frozen=True)
class FileLeases(Leases):
    """A file, written whole."""

    path: Path

    def load(self, stream: Stream) -> ShardReadLimit | None:
        try:
            limit = ShardReadLimit.of(json.loads(self.path.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileUnusable(f"{self.path} does not say how far {stream.name!r} is read", why=str(error)) from None
        if limit.stream != stream.name:
            what = f"{self.path} has the positions of {limit.stream!r}, not {stream.name!r}"
            raise FileUnusable(what, hint="give each stream an application's name of its own")
        return limit

    def save(self, reach: ShardReadLimit, listed: Mapping[str, Shard], *, briefly: bool = False) -> None:
        del listed, briefly
        try:
            write_whole(self.path, json.dumps(reach.to_json()))
        except OSError as error:
            raise FileUnusable(f"{self.path} cannot be written", why=str(error)) from None


class TableLeases(Leases):
    """A table of DynamoDB, made if it is not there."""

    def __init__(self, door: Kinesis, table: str, owner: str, endpoint: str | None = None) -> None:
        self._door, self._table, self._owner, self._endpoint = door, table, owner, endpoint
        self._written: dict[str, ShardPosition] = {}
        self._counters: dict[str, int] = {}

    def load(self, stream: Stream) -> ShardReadLimit | None:
        """The leases of all shards; from now on they are ours."""
        items = {item["leaseKey"]["S"]: item for item in self._items()}
        if not items:
            return None
        self._counters = {name: _number(item, "leaseCounter") for name, item in items.items()}
        shards = {name: _position(item) for name, item in items.items()}
        ours = (_number(item, "millraceCreated") for item in items.values() if "millraceCreated" in item)
        return ShardReadLimit(stream.name, next(ours, stream.created), shards=shards)

    def save(self, reach: ShardReadLimit, listed: Mapping[str, Shard], *, briefly: bool = False) -> None:
        """One item a shard; what another has taken over is not touched."""
        for name, position in sorted(reach.shards.items()):
            if self._written.get(name) == position:
                continue
            parents = listed[name].parents if name in listed else ()
            item = self._item(name, position, reach.created, parents)
            self._put(item, _BRIEF_S if briefly else self._door.patience, first=name not in self._written)
            self._written[name] = position

    def _items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        asked: dict[str, Any] = {"TableName": self._table, "ConsistentRead": True}
        while True:
            try:
                page = self._ask("scan", **asked)
            except MillraceError as error:
                if error.__cause__ is None or code_of(error.__cause__) != "ResourceNotFoundException":
                    raise
                self._make()
                return []
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                return items
            asked["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _make(self) -> None:
        self._ask(
            "create_table",
            TableName=self._table,
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self._client.get_waiter("table_exists").wait(
            TableName=self._table, WaiterConfig={"Delay": 0.25, "MaxAttempts": 480}
        )

    def _item(self, name: str, position: ShardPosition, created: int, parents: tuple[str, ...]) -> dict[str, Any]:
        self._counters[name] = self._counters.get(name, -1) + 1
        numbers = {
            "leaseCounter": self._counters[name],
            "checkpointSubSequenceNumber": 0,
            "ownerSwitchesSinceCheckpoint": 0,
            "millraceCreated": created,
            "millraceSeen": position.seen,
            **({} if position.since is None else {"millraceSince": position.since}),
        }
        return {
            "leaseKey": {"S": name},
            "leaseOwner": {"S": self._owner},
            "checkpoint": {"S": _checkpoint(position)},
            **({"millraceAfter": {"S": position.after}} if position.after else {}),
            **({"parentShardId": {"SS": list(parents)}} if parents else {}),
            **{key: {"N": str(value)} for key, value in numbers.items()},
        }

    def _put(self, item: dict[str, Any], patience: float, *, first: bool) -> None:
        ours = {
            "ConditionExpression": "attribute_not_exists(leaseKey) OR leaseOwner = :me",
            "ExpressionAttributeValues": {":me": {"S": self._owner}},
        }
        try:
            self._ask("put_item", patience, TableName=self._table, Item=item, **({} if first else ours))
        except MillraceError as error:
            if error.__cause__ is None or code_of(error.__cause__) != "ConditionalCheckFailedException":
                raise
            what = f"another program has taken over {item['leaseKey']['S']} of application {self._table!r}"
            raise TakenOver(what, hint="let one program run for each application's name") from None

    def _ask(self, call: str, patience: float | None = None, **asked: Any) -> Any:
        door = self._door if patience is None else replace(self._door, patience=patience)
        return door.call_with_retries(
            getattr(self._client, call), f"use the table {self._table!r} of DynamoDB", **asked
        )

    @property
    def _client(self) -> Any:
        return self._door.client("dynamodb", self._endpoint)


def _checkpoint(position: ShardPosition) -> str:
    if position.ended:
        return _END
    return position.after or (_OLDEST if position.since is None else _AT_TIME)


def _position(item: Mapping[str, Any]) -> ShardPosition:
    checkpoint, seen = item["checkpoint"]["S"], _number(item, "millraceSeen")
    if checkpoint == _END:
        return ShardPosition(item.get("millraceAfter", {}).get("S"), seen=seen, ended=True)
    if checkpoint.isdigit():
        return ShardPosition(checkpoint, seen=seen)
    if "millraceSeen" not in item:  # another program's: from when it is, nobody knows, so that nothing counts as lost
        seen = int(time.time() * 1000)
    # LATEST, which another program has left, says nothing of what came since: all that is there is read.
    return ShardPosition(since=_number(item, "millraceSince") if "millraceSince" in item else None, seen=seen)


def _number(item: Mapping[str, Any], name: str) -> int:
    return int(item.get(name, {}).get("N", 0))
