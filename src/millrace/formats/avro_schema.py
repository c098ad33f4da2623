"""Avro schemas: read and made safe to decode with, and their types as columns and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.errors import InvalidSchema
from millrace.pipeline.schema import Array, Decimal, Field, Map, Schema, Simple, Struct, Type

if TYPE_CHECKING:
    import pyarrow as pa

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    "date": "date",
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), "timestamp"),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), "timestamp_ntz"),
    **dict.fromkeys(("time-millis", "time-micros", "uuid"), "string"),
}
_WIDER = ({"int", "bigint"}, "bigint"), ({"float", "double"}, "double"), ({"int", "double"}, "double")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_DIGITS = 38


class InvalidAvro(ValueError):
    """A text that is no Avro schema, or one that cannot be used here."""


class AvroSchema(NamedTuple):
    """A record's schema as fastavro wants it, and the types it names."""

    record: dict[str, Any]
    named: Mapping[str, Any]


def read_avro(text: str, before: Mapping[str, Any] | None = None) -> AvroSchema:
    """The schema that a text describes; `before` has the types of schemas that it refers to."""
    import fastavro

    named: dict[str, Any] = dict(before or {})
    try:
        parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except json.JSONDecodeError as error:
        raise InvalidAvro(f"not JSON: {error}") from None
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidAvro(f"no Avro schema: {type(error).__name__}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidAvro(f"no Avro schema: {type(error).__name__} {error}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise InvalidAvro("not the schema of a record")
    _least_bytes(parsed, named, (), {})
    return AvroSchema(parsed, named)


def _least_bytes(kind: Any, named: Mapping[str, Any], within: tuple[str, ...], known: dict[str, int]) -> int:
    """How many bytes a value has at least; refuses what a few bytes could make without end."""
    if isinstance(kind, list):
        for branch in kind:
            _least_bytes(branch, named, within, known)
        return 1
    if isinstance(kind, str):
        if kind in within:  # fastavro would recurse as often as the bytes say, until the process ends
            raise InvalidAvro(f"the type {kind} refers to itself, which is not supported")
        if kind in named and kind not in known:
            known[kind] = _least_bytes(named[kind], named, within, known)
        return known[kind] if kind in named else int(kind != "null")
    name = kind["type"]
    if name == "record":
        inner = (*within, kind["name"])
        return sum(_least_bytes(field["type"], named, inner, known) for field in kind["fields"])
    if name == "array" and not _least_bytes(kind["items"], named, within, known):
        raise InvalidAvro("an array of values without bytes, which is not supported")
    if name == "map":
        _least_bytes(kind["values"], named, within, known)
    if name == "fixed":
        return int(kind["size"])
    return _least_bytes(name, named, within, known) if isinstance(name, dict | list) else int(name != "null")


def schema_of(avro: AvroSchema) -> Schema:
    """The columns of a record."""
    return Schema(_fields(avro.record, avro.named))


def _fields(record: Mapping[str, Any], named: Mapping[str, Any]) -> tuple[Field, ...]:
    fields: dict[str, Field] = {}
    for declared in record["fields"]:
        name, kind = declared["name"], declared["type"]
        fields[name.lower()] = Field(name, _type(name, kind, named), nullable="null" in _branches(kind))
    if len(fields) < len(record["fields"]) or not fields:
        raise InvalidSchema(
            f"the Avro record {record['name']} has {'two fields of one name' if fields else 'no fields'}",
            hint="declare the columns that are needed with schema: …",
        )
    return tuple(fields.values())


def _branches(kind: Any) -> list[Any]:
    """The types of a union; another type alone."""
    return kind if isinstance(kind, list) else [kind]


def _type(path: str, kind: Any, named: Mapping[str, Any]) -> Type:
    types = {_branch_type(path, branch, named) for branch in _branches(kind) if branch != "null"}
    if len(types) == 1:
        return types.pop()
    names = {type_.ddl() for type_ in types}
    for narrow, wide in _WIDER:
        if names <= narrow:
            return Simple(wide)
    raise InvalidSchema(
        f"column {path}: no type holds the Avro union of {', '.join(sorted(names)) or 'null alone'}",
        hint="declare the columns that are needed with schema: …",
    )


def _branch_type(path: str, kind: Any, named: Mapping[str, Any]) -> Type:
    if isinstance(kind, str):
        return _branch_type(path, named[kind], named) if kind in named else Simple(_PRIMITIVES[kind])
    name, logical = kind["type"], kind.get("logicalType")
    if isinstance(name, dict | list):
        return _type(path, name, named)
    if logical == "decimal" and 0 < kind.get("precision", 0) <= _MOST_DIGITS:
        return Decimal(kind["precision"], kind.get("scale", 0))
    if name == "array":
        return Array(_type(f"{path}[]", kind["items"], named))
    if name == "map":
        return Map(Simple("string"), _type(f"{path}[]", kind["values"], named))
    if name == "record":
        return Struct(_fields(kind, named))
    if name in named and name not in _PRIMITIVES:
        return _branch_type(path, named[name], named)
    return Simple(_LOGICAL.get(logical, _PRIMITIVES[name]))


def avro_of(schema: pa.Schema) -> str:
    """An Avro schema for rows of Arrow columns."""
    return json.dumps(_record("record", list(schema)) | {"namespace": "millrace"})


def _record(name: str, fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(name, field) for field in fields]}


def _field(owner: str, field: Any) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise InvalidSchema(
            f"Avro has no field named {field.name!r}",
            hint="rename the column: letters, digits and _ only, and no digit first",
        )
    kind = _nullable(f"{owner}_{field.name}", field)
    return {"name": field.name, "type": kind} | ({"default": None} if field.nullable else {})


def _nullable(name: str, field: Any) -> Any:
    kind = _avro_type(name, field.type)
    return ["null", kind] if field.nullable else kind


def _avro_type(name: str, kind: Any) -> Any:
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return {"type": "array", "items": _nullable(f"{name}_element", kind.value_field)}
    if types.is_map(kind):
        if not (types.is_string(kind.key_type) or types.is_large_string(kind.key_type)):
            raise InvalidSchema(f"the keys of an Avro map are strings, not {kind.key_type}")
        return {"type": "map", "values": _nullable(f"{name}_value", kind.item_field)}
    if types.is_struct(kind):
        return _record(name, list(kind))
    if types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if str(kind) not in _AVRO:
        raise InvalidSchema(f"Avro has no type for {kind}", hint="cast the column to a type that it has")
    return _AVRO[str(kind)]


_AVRO: dict[str, Any] = {
    "bool": "boolean",
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    "float": "float",
    "double": "double",
    **dict.fromkeys(("string", "large_string"), "string"),
    **dict.fromkeys(("binary", "large_binary"), "bytes"),
    "date32[day]": {"type": "int", "logicalType": "date"},
}
