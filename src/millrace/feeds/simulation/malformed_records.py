"""The ways in which records are broken in real life: `WAYS` lists them."""

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
        typed = [index for index, (name, kind) in enumerate(columns) if kind != "string" or name == moment]
        return cls([name for name, _ in columns].index(moment), tuple(typed))


class WellFormed(NamedTuple):
    """A record as it should have been, in JSON or in any other form whose fields stand between commas."""

    value: bytes
    shape: MalformedShape
    rng: random.Random

    def fields(self) -> list[tuple[bytes, bytes]]:
        """Each field's name (`"id":` in JSON, else nothing) and its value, as they are written."""
        if record := _json_object(self.value):
            return [(orjson.dumps(name) + b":", orjson.dumps(value)) for name, value in record.items()]
        return [(b"", value) for value in self.value.split(b",")]

    def joined(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        text = b",".join(name + value for name, value in fields)
        return b"{" + text + b"}" if _json_object(self.value) else text

    def typed_as(self, value: bytes) -> bytes:
        """The record with another value where something else than text belongs."""
        return self.changed(self.rng.choice(self.shape.typed), value)

    def changed(self, index: int, value: bytes) -> bytes:
        """The record with another value in one field."""
        fields = self.fields()
        index %= len(fields)
        fields[index] = (fields[index][0], value)
        return self.joined(fields)


def _with_broken_byte(good: WellFormed) -> bytes:
    index = good.rng.randrange(len(good.value) + 1)
    return good.value[:index] + b"\xff" + good.value[index:]


def _without_time(good: WellFormed) -> bytes:
    fields = good.fields()
    del fields[good.shape.moment % len(fields)]
    return good.joined(fields)


def _unquoted(good: WellFormed) -> bytes:
    bare = re.sub(rb'"(\w+)":', rb"\1:", good.value)
    return bare if bare != good.value else good.value.replace(b",", b";")


_FOREIGN = (b"<html><body><h1>502 Bad Gateway</h1></body></html>", b"connection reset by peer", b"ping", b"undefined")
_TIMES = (b'"2026-02-30T12:00:00.000Z"', b'"2026-01-01T25:61:00.000Z"', b'"0000-00-00 00:00:00"')

WAYS: tuple[Callable[[WellFormed], bytes | None], ...] = (
    lambda good: good.value[: int(len(good.value) * good.rng.uniform(0.2, 0.8))],  # cut off in the middle
    lambda _: b"",
    lambda _: None,  # a tombstone, which Kafka allows
    lambda good: good.rng.choice(_FOREIGN),  # what was not meant for this topic
    lambda good: b"[" + b",".join(value for _, value in good.fields()) + b"]",  # the values without their names
    lambda good: good.value + good.value,  # two records in one
    _with_broken_byte,  # one that no UTF-8 text holds
    _without_time,  # a required field is missing
    lambda good: good.typed_as(b'{"value":null}'),  # an object where a number, a list or a time belongs
    lambda good: good.typed_as(b"NaN"),  # what JavaScript and Python write for 0/0, and JSON does not know
    lambda good: good.typed_as(b"1e999"),  # a number that fits no type
    lambda good: good.changed(good.shape.moment, good.rng.choice(_TIMES)),  # a time that never was
    _unquoted,  # names without quotes; where there are no names, semicolons instead of commas
    lambda good: orjson.dumps(good.value.decode("utf-8", "replace")),  # the record as a JSON string
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
