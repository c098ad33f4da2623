"""Columns as Spark takes them back."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millrace.formats.arrow_types import arrow_schema
from millrace.pipeline.schema import Array, Field, Map, Struct, Type, parse_schema

DDL = (
    "id string NOT NULL, q boolean, t tinyint, s smallint, n int, l bigint, f float, x double, d date, at timestamp, "
    "u timestamp_ntz, b binary, p decimal(10,2), g array<string>, m map<string,array<int>>, "
    "o struct<lat: double NOT NULL, at: array<timestamp>>"
)
SPARK = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def spark_type(kind: Type) -> Any:
    """A type in the JSON of Spark's schemas."""
    if isinstance(kind, Array):
        return {"type": "array", "elementType": spark_type(kind.element), "containsNull": True}
    if isinstance(kind, Map):
        value = spark_type(kind.value)
        return {"type": "map", "keyType": spark_type(kind.key), "valueType": value, "valueContainsNull": True}
    if isinstance(kind, Struct):
        return spark_struct(kind.fields)
    return SPARK.get(kind.ddl(), kind.ddl())


def spark_struct(fields: tuple[Field, ...]) -> dict[str, Any]:
    """Fields in the JSON of Spark's schemas."""
    members = [
        {"name": field.name, "type": spark_type(field.type), "nullable": field.nullable, "metadata": {}}
        for field in fields
    ]
    return {"type": "struct", "fields": members}


def test_types_are_those_of_spark() -> None:
    schema = parse_schema(DDL)
    theirs = to_arrow_schema(StructType.fromJson(spark_struct(schema.fields)), timezone="UTC")
    assert arrow_schema(schema).equals(theirs)
