"""The ways in which records are broken in real life, one short function a way."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple

import orjson


class MalformedShape(NamedTuple):
    """Which fields of a record, by position, a reader cannot take as they come."""

    moment: int
    """The event time."""
    typed: tuple[int, ...]
    """Everything that is more than text, and the event time."""

    @classmethod
    def of(cls, schema: str, moment: str) -> MalformedShape:
        """The shape of records whose columns are given as Spark DDL."""
        columns: list[tuple[str, str]] = re.findall(r"(\w+) (\w+(?:<[^>]*>)?)", schema)
        typed = [place for place, (name, kind) in enumerate(columns) if kind != "string" or name == moment]
        return cls([name for name, _ in columns].index(moment), tuple(typed))


class WellFormed(NamedTuple):
    """A record as it should have been, in JSON or in any other form whose fields stand between commas."""

    value: bytes
    shape: MalformedShape
    rng: random.Random

    def fields(self) -> list[tuple[bytes, bytes]]:
        """Each field's name (`"id":` in JSON, else nothing) and its value, as they are written."""
        record = _json_object(self.value)
        if record:
            return [(orjson.dumps(name) + b":", orjson.dumps(value)) for name, value in record.items()]
        return [(b"", value) for value in self.value.split(b",")]

    def joined(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        """The record with these fields."""
        text = b",".join(name + value for name, value in fields)
        return b"{" + text + b"}" if _json_object(self.value) else text

    def typed_as(self, value: bytes) -> bytes:
        """The record with another value where something else than text belongs."""
        return self.changed(self.rng.choice(self.shape.typed), value)

    def changed(self, place: int, value: bytes) -> bytes:
        """The record with another value in one place."""
        fields = self.fields()
        place %= len(fields)
        fields[place] = (fields[place][0], value)
        return self.joined(fields)


def truncated(good: WellFormed) -> bytes | None:
    """Cut off in the middle."""
    return good.value[: int(len(good.value) * good.rng.uniform(0.2, 0.8))]


def empty(_: WellFormed) -> bytes | None:
    """No bytes at all."""
    return b""


def tombstone(_: WellFormed) -> bytes | None:
    """Null, which Kafka allows."""
    return None


def prose(good: WellFormed) -> bytes | None:
    """What somebody else meant to say to somebody else."""
    return good.rng.choice(
        (b"<html><body><h1>502 Bad Gateway</h1></body></html>", b"connection reset by peer", b"ping", b"undefined")
    )


def bare_array(good: WellFormed) -> bytes | None:
    """The values without their names."""
    return b"[" + b",".join(value for _, value in good.fields()) + b"]"


def glued(good: WellFormed) -> bytes | None:
    """Two records in one."""
    return good.value + good.value


def broken_utf8(good: WellFormed) -> bytes | None:
    """A byte that no UTF-8 text holds."""
    place = good.rng.randrange(len(good.value) + 1)
    return good.value[:place] + b"\xff" + good.value[place:]


def timeless(good: WellFormed) -> bytes | None:
    """A required field, the event time, is missing."""
    fields = good.fields()
    del fields[good.shape.moment % len(fields)]
    return good.joined(fields)


def wrong_type(good: WellFormed) -> bytes | None:
    """An object where a number, a list or a time belongs."""
    return good.typed_as(b'{"value":null}')


def not_a_number(good: WellFormed) -> bytes | None:
    """What JavaScript and Python write for 0/0, and JSON does not know."""
    return good.typed_as(b"NaN")


def enormous(good: WellFormed) -> bytes | None:
    """A number that fits no type."""
    return good.typed_as(b"1e999")


def impossible_date(good: WellFormed) -> bytes | None:
    """A time that never was."""
    text = good.rng.choice((b'"2026-02-30T12:00:00.000Z"', b'"2026-01-01T25:61:00.000Z"', b'"0000-00-00 00:00:00"'))
    return good.changed(good.shape.moment, text)


def unquoted(good: WellFormed) -> bytes | None:
    """Names without quotes; where there are no names, semicolons instead of commas."""
    bare = re.sub(rb'"(\w+)":', rb"\1:", good.value)
    return bare if bare != good.value else good.value.replace(b",", b";")


def encoded_twice(good: WellFormed) -> bytes | None:
    """The record as a JSON string."""
    return orjson.dumps(good.value.decode("utf-8", "replace"))


WAYS: tuple[Callable[[WellFormed], bytes | None], ...] = (
    truncated,
    empty,
    tombstone,
    prose,
    bare_array,
    glued,
    broken_utf8,
    timeless,
    wrong_type,
    not_a_number,
    enormous,
    impossible_date,
    unquoted,
    encoded_twice,
)


def malform(value: bytes, shape: MalformedShape, rng: random.Random) -> bytes | None:
    """A record broken in one of the ways."""
    return rng.choice(WAYS)(WellFormed(value, shape, rng))


def _json_object(value: bytes) -> dict[str, object] | None:
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
