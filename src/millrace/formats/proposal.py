"""A schema for a sample in which some records may be broken: from what most agree on, and how many do not fit it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from millrace.formats.infer import DEEPEST, infer_schema, leaf
from millrace.formats.json import Json
from millrace.pipeline.schema import Array, Schema, Struct, Type

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
    unfit: Counter[str]
    """How many records do not fit, by the decoder's reason."""
    other_case: Counter[tuple[str, str]]
    """How many records have a key that differs from a column in case only: where the key stands, and the column."""


def propose(values: Sequence[bytes]) -> Proposal:
    """The schema that most records agree on; raises when none of them is a JSON object with fields."""
    schema = infer_schema(_sound(values))
    decoded = Json().decoder(schema).decode(pa.array(values, pa.binary()))
    other_case = Counter(
        found for value in values for found in set(_in_other_case(_parsed(value), Struct(schema.fields), ""))
    )
    return Proposal(schema, len(values), Counter(one.reason for one in decoded.bad), other_case)


def _sound(values: Sequence[bytes]) -> list[bytes]:
    """The values without those that differ from nearly all others in some place."""
    traits = [set(_traits(_parsed(value), "")) for value in values]
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place, family in (one for record in traits for one in record):
        seen[place][family] += 1
    broken = {
        (place, family)
        for place, families in seen.items()
        for family, count in families.items()
        if count <= _FEW * families.total() and not (family == "time" and families["string"] > count)
    }
    return [value for value, found in zip(values, traits, strict=True) if not found & broken]


def _in_other_case(value: Any, kind: Type, place: str) -> Iterator[tuple[str, str]]:
    """The keys that a column is not read from because their case is another; the column is null then."""
    if isinstance(kind, Array) and isinstance(value, list):
        for one in value:
            yield from _in_other_case(one, kind.element, f"{place}[]")
    elif isinstance(kind, Struct) and isinstance(value, dict):
        columns = {field.name.lower(): field for field in kind.fields}
        for name, one in value.items():
            field = columns.get(name.lower())
            if field and field.name == name:
                yield from _in_other_case(one, field.type, f"{place}{name}.")
            elif field:
                yield f"{place}{name}", f"{place}{field.name}"


def _traits(value: Any, place: str, depth: int = 0) -> Iterator[_Trait]:
    if value is None or depth > DEEPEST:
        return
    if isinstance(value, dict):
        yield place, "object"
        for name, one in value.items():
            yield from _traits(one, f"{place}.{name}", depth + 1)
    elif isinstance(value, list):
        yield place, "array"
        for one in value:
            yield from _traits(one, f"{place}[]", depth + 1)
    else:
        kind = leaf(value).name
        yield place, _FAMILIES.get(kind, kind)


def _parsed(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
