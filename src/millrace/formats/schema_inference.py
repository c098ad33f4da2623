"""A schema that fits samples of JSON: what `millrace schema` proposes.

A schema for a sample in which some records may be broken: from what most agree on, and how many do not fit it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from millrace.errors import InputError
from millrace.formats.conversion import days_of_text, micros_of_text
from millrace.formats.json import Json
from millrace.pipeline.schema import Array, Field, Map, Schema, Simple, Struct, Type

_STRING = Simple("string")
_WIDER = {
    frozenset((Simple("bigint"), Simple("double"))): Simple("double"),
    frozenset((Simple("date"), Simple("timestamp"))): Simple("timestamp"),
}
_BIGGEST = 1 << 63
DEEPEST_LEVEL = 30
"""How deep lists and objects have types of their own; below that everything is text."""


class _Object(dict[str, "_Kind"]):
    """The fields of objects seen so far, in order of their first appearance."""


class _List(NamedTuple):
    """The elements of arrays seen so far."""

    element: _Kind


_Kind = Simple | _Object | _List | None
"""What has been seen of a field; None is nothing but null."""


def infer_schema(values: Iterable[bytes]) -> Schema:
    """The columns of JSON objects: wide enough for all samples, in order of appearance, and nullable."""
    records = [_parsed(value) for value in values]
    objects = [record for record in records if isinstance(record, dict)]
    whole = reduce(_merged, (_kind(record, 0) for record in objects), None)
    fields = _fields(whole) if isinstance(whole, _Object) else ()
    if not fields:
        seen = "objects without named fields" if objects else "no JSON object among them"
        raise InputError(
            f"no schema can be proposed from {len(records)} records: {seen}",
            hint="millrace schema reads JSON; other formats need a schema written by hand",
        )
    return Schema(fields)


def _kind(value: Any, depth: int) -> _Kind:
    if value is None:
        return None
    if depth > DEEPEST_LEVEL:
        return _STRING
    if isinstance(value, dict):
        return _Object((name, _kind(item, depth + 1)) for name, item in value.items())
    if isinstance(value, list):
        return _List(reduce(_merged, (_kind(item, depth + 1) for item in value), None))
    return leaf_type(value)


def leaf_type(value: Any) -> Simple:
    """The narrowest type of a value that is neither a list nor an object."""
    if isinstance(value, bool):
        return Simple("boolean")
    if isinstance(value, int):
        return Simple("bigint" if -_BIGGEST <= value < _BIGGEST else "double")
    if isinstance(value, float):
        return Simple("double")
    if _reads(days_of_text, value):
        return Simple("date")
    return Simple("timestamp") if _reads(micros_of_text, value) else _STRING


def _reads(read: Callable[[str], int], text: str) -> bool:
    try:
        read(text)
    except (ValueError, OverflowError):
        return False
    return True


def _merged(kind_so_far: _Kind, other: _Kind) -> _Kind:
    if kind_so_far is None:
        return other
    if other is None or kind_so_far == other:  # equal objects may have their fields in another order: the first counts
        return kind_so_far
    if isinstance(kind_so_far, _Object) and isinstance(other, _Object):
        for name, kind in other.items():
            kind_so_far[name] = _merged(kind_so_far.get(name), kind)
        return kind_so_far
    if isinstance(kind_so_far, _List) and isinstance(other, _List):
        return _List(_merged(kind_so_far.element, other.element))
    if isinstance(kind_so_far, Simple) and isinstance(other, Simple):
        return _WIDER.get(frozenset((kind_so_far, other)), _STRING)
    return _STRING


def _fields(seen: _Object) -> tuple[Field, ...]:
    """Spark takes names that differ in case only for one, so the first of them stands."""
    fields: dict[str, Field] = {}
    for name, kind in seen.items():
        if name:
            fields.setdefault(name.lower(), Field(name, _type(kind)))
    return tuple(fields.values())


def _type(kind: _Kind) -> Type:
    if isinstance(kind, _Object):
        fields = _fields(kind)
        return Struct(fields) if fields else Map(_STRING, _STRING)
    if isinstance(kind, _List):
        return Array(_type(kind.element))
    return kind or _STRING


_FEW = 0.1
"""The share of the records with a field up to which those that have something else in it are taken for broken."""
_FAMILIES = {"bigint": "number", "double": "number", "date": "time", "timestamp": "time"}
_Trait = tuple[str, str]
"""A place in a record, and what is there: a number, a time, a text, a list, an object."""


@dataclass(frozen=True)
class Proposal:
    """A schema, and why records of the sample would be dead letters with it."""

    schema: Schema
    records: int
    filled: dict[str, int]
    """How many records have a value in each column."""
    foreign: int
    """How many records have none of the usual fields: their own are left out."""
    unfit: Counter[str]
    """How many records do not fit, by the decoder's reason."""
    other_case: Counter[tuple[str, str]]
    """How many records have a key that differs from a column in case only: where the key stands, and the column."""


def propose_schema(values: Sequence[bytes]) -> Proposal:
    """The schema that most records agree on; raises when none of them is a JSON object with fields."""
    usual, foreign = _without_foreign(values)
    schema = infer_schema(_sound(usual))
    decoded = Json().decoder(schema).decode(pa.array(values, pa.binary()))
    other_case = Counter(
        pair for value in values for pair in set(_in_other_case(_parsed(value), Struct(schema.fields), ""))
    )
    records = [record for record in map(_parsed, values) if isinstance(record, dict)]
    filled = {name: sum(record.get(name) is not None for record in records) for name in schema.names}
    reasons = Counter(rejected.reason for rejected in decoded.bad)
    return Proposal(schema, len(values), filled, foreign, reasons, other_case)


def _without_foreign(values: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Return the values without a few objects that have no field which most others have, and how many these are."""
    records = [_parsed(value) for value in values]
    objects = [record for record in records if isinstance(record, dict) and record]
    counts = Counter(name for record in objects for name in record)
    common = {name for name, count in counts.items() if count > len(objects) / 2}
    foreign = {
        index
        for index, record in enumerate(records)
        if isinstance(record, dict) and record and not common & record.keys()
    }
    if not common or len(foreign) > _FEW * len(objects):
        return list(values), 0
    return [value for index, value in enumerate(values) if index not in foreign], len(foreign)


def _sound(values: Sequence[bytes]) -> list[bytes]:
    """The values without those that differ from nearly all others in some place."""
    traits = [set(_traits(_parsed(value), "")) for value in values]
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place, family in (trait for record in traits for trait in record):
        seen[place][family] += 1
    broken = {
        (place, family)
        for place, families in seen.items()
        for family, count in families.items()
        if count <= _FEW * families.total() and not (family == "time" and families["string"] > count)
    }
    return [value for value, record_traits in zip(values, traits, strict=True) if not record_traits & broken]


def _in_other_case(value: Any, kind: Type, place: str) -> Iterator[tuple[str, str]]:
    """The keys that a column is not read from because their case is another; the column is null then."""
    if isinstance(kind, Array) and isinstance(value, list):
        for item in value:
            yield from _in_other_case(item, kind.element, f"{place}[]")
    elif isinstance(kind, Struct) and isinstance(value, dict):
        columns = {field.name.lower(): field for field in kind.fields}
        for name, inner in value.items():
            field = columns.get(name.lower())
            if field and field.name == name:
                yield from _in_other_case(inner, field.type, f"{place}{name}.")
            elif field:
                yield f"{place}{name}", f"{place}{field.name}"


def _traits(value: Any, place: str, depth: int = 0) -> Iterator[_Trait]:
    if value is None or depth > DEEPEST_LEVEL:
        return
    if isinstance(value, dict):
        yield place, "object"
        for name, inner in value.items():
            yield from _traits(inner, f"{place}.{name}", depth + 1)
    elif isinstance(value, list):
        yield place, "array"
        for item in value:
            yield from _traits(item, f"{place}[]", depth + 1)
    else:
        kind = leaf_type(value).name
        yield place, _FAMILIES.get(kind, kind)


def _parsed(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
