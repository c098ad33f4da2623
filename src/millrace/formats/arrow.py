"""The Arrow types in which Spark takes columns back from `mapInArrow`."""

from __future__ import annotations

import pyarrow as pa

from millrace.pipeline.schema import Array, Decimal, Field, Map, Schema, Struct, Type

_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns as Spark wants them back."""
    return pa.schema([arrow_field(field) for field in schema.fields])


def arrow_field(field: Field) -> pa.Field:
    """One column, or one field of a struct."""
    return pa.field(field.name, arrow_type(field.type), nullable=field.nullable)


def arrow_type(kind: Type) -> pa.DataType:
    """A Spark type in Arrow; the names of inner fields are those that Spark uses."""
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, Map):
        return pa.map_(arrow_type(kind.key), pa.field("value", arrow_type(kind.value)))
    if isinstance(kind, Struct):
        return pa.struct([arrow_field(field) for field in kind.fields])
    return _SIMPLE[kind.name]
