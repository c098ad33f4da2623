"""Two topics compared: the newest value of each key, or every record, in a file on disk rather than in memory."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import orjson
from confluent_kafka import Message

from millrace.clients.cluster import Cluster
from millrace.clients.committed import records

SHOWN = 10
"""Differences that are shown."""
_KEPT = 200
"""Bytes of a value that are kept to be shown."""
_NULL = b"\0"
_OF_A_RECORD = ("digest", "value", "place", "at")


@dataclass(frozen=True)
class Difference:
    """A key that the two do not have alike; None is what one of them does not have."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Compared:
    """Two generations of one output."""

    name: str
    how: str
    """What was held against what."""
    old: tuple[int, int]
    """Rows (records), and keys among them."""
    new: tuple[int, int]
    only_old: int = 0
    only_new: int = 0
    differing: int = 0
    """Keys that both have, with something else."""
    sample: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.only_old or self.only_new or self.differing)


def compare(
    cluster: Cluster, old: str, new: str, *, newest: bool, json: bool, told: Callable[[int], None] = lambda _: None
) -> Compared:
    """Compare what two topics hold now, committed records only.

    `newest`: a key stands for one thing, whose newest value counts, as in a compacted topic; else every record counts,
    in whatever order. Records without a key are compared whole. `json`: the order of fields does not matter.
    """
    with tempfile.TemporaryDirectory() as folder:
        base = sqlite3.connect(Path(folder) / "compared")
        try:
            base.execute("PRAGMA journal_mode = OFF")
            base.execute("PRAGMA synchronous = OFF")
            rows = [_load(base, cluster, *one, newest=newest, json=json, told=told) for one in (("a", old), ("b", new))]
            how = "the newest value of each key" if newest else "every record, in whatever order"
            return _compared(base, old, how, rows)
        finally:
            base.close()


def _load(
    base: sqlite3.Connection,
    cluster: Cluster,
    table: str,
    topic: str,
    *,
    newest: bool,
    json: bool,
    told: Callable[[int], None],
) -> int:
    """Put a topic into a table: by key the digest of its newest value, or by key and value how often it is there."""
    base.execute(
        f"CREATE TABLE {table} (key BLOB, mark BLOB, digest BLOB, n INT, value BLOB, place INT, at INT, "
        "PRIMARY KEY (key, mark)) WITHOUT ROWID"
    )
    # Partitions come in no order among each other: of two in which a key is, the later time counts.
    newer = "excluded.place = place OR excluded.at >= at"
    taken = (f"{one} = CASE WHEN {newer} THEN excluded.{one} ELSE {one} END" for one in _OF_A_RECORD)
    add = (
        f"INSERT INTO {table} VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT (key, mark) DO UPDATE SET "  # noqa: S608 - a or b
        f"n = n + 1, {', '.join(taken)}"
    )
    count = 0
    for batch in records(cluster, [topic]):
        base.executemany(add, (_row(message, newest=newest, json=json) for message in batch))
        count += len(batch)
        told(len(batch))
    return count


def _row(message: Message, *, newest: bool, json: bool) -> tuple[bytes, bytes, bytes, bytes | None, int, int]:
    key, value = message.key(), message.value()
    digest = blake2b(_NULL if value is None else _plain(value, json=json), digest_size=16).digest()
    shown = None if value is None else value[:_KEPT]
    own = b"" if key is None else b"=" + _bytes(key)  # no key is not an empty key
    when = (message.partition() or 0, message.timestamp()[1])
    return (own, b"", digest, shown, *when) if newest and key is not None else (own, digest, b"", shown, *when)


def _plain(value: bytes, *, json: bool) -> bytes:
    if json:
        try:
            return orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)
        except ValueError:
            return value
    return value


def _compared(base: sqlite3.Connection, name: str, how: str, rows: list[int]) -> Compared:
    one_sided = "SELECT {0}.key, {0}.value FROM {0} LEFT JOIN {1} USING (key, mark) WHERE {1}.key IS NULL"
    both = (
        "SELECT a.key, a.value, b.value, a.n, b.n FROM a JOIN b USING (key, mark) "
        "WHERE a.digest <> b.digest OR (a.mark <> x'' AND a.n <> b.n)"
    )
    only_old, only_new = one_sided.format("a", "b"), one_sided.format("b", "a")
    sample = [_difference(key, old, new, times) for key, old, new, *times in base.execute(f"{both} LIMIT {SHOWN}")]
    sample += [Difference(_text(key), _text(value), None) for key, value in base.execute(f"{only_old} LIMIT {SHOWN}")]
    sample += [Difference(_text(key), None, _text(value)) for key, value in base.execute(f"{only_new} LIMIT {SHOWN}")]

    def count(query: str) -> int:
        return int(base.execute(f"SELECT count(*) FROM ({query})").fetchone()[0])  # noqa: S608 - our own

    keys = [count(f"SELECT DISTINCT key, CASE WHEN key = x'' THEN mark END FROM {table}") for table in ("a", "b")]  # noqa: S608
    return Compared(
        name,
        how,
        (rows[0], keys[0]),
        (rows[1], keys[1]),
        count(only_old),
        count(only_new),
        count(both),
        tuple(sample[:SHOWN]),
    )


def _difference(key: bytes, old: bytes | None, new: bytes | None, times: list[int]) -> Difference:
    if old == new and times[0] != times[1]:
        return Difference(_text(key), f"{times[0]} × {_text(old)}", f"{times[1]} × {_text(new)}")
    return Difference(_text(key), _text(old), _text(new))


def _text(content: bytes | None) -> str:
    return "null" if content is None else content.removeprefix(b"=").decode("utf-8", "backslashreplace")


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key
