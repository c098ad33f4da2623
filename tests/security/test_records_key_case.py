"""A JSON key that differs from a column in case only: every way through the decoder does what Spark's own does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from formats.records import decode, decoder, outcomes
from millrace.formats.json_decoder import JsonDecoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id int, s struct<a: int, b: string>, l array<struct<a: int>>"
RECORDS = [
    b'{"ID":1}',
    b'{"Id":"x"}',
    b'{"id":1,"ID":2}',
    b'{"ID":2,"id":1}',
    b'{"id":1,"id":2}',
    b'{"id":1,"id":null}',
    b'{"ID":1,"ID":2}',
    b'{"S":{"a":1}}',
    b'{"s":{"A":1,"b":"x"}}',
    b'{"s":{"A":1,"a":2}}',
    b'{"s":{"a":2},"s":{"b":"x"}}',
    b'{"s":{"a":1},"S":{"a":2}}',
    b'{"l":[{"A":1},{"a":2}]}',
    '{"İd":1,"ıd":2}'.encode(),
]


def ours(records: list[bytes], *, quickly: bool) -> list[object]:
    """What our decoder makes of each record, alone and together."""
    made = decoder("json", DDL)
    assert isinstance(made, JsonDecoder)
    assert made._readers
    if not quickly:
        made._readers = []
    together = outcomes(decode(made, records), len(records))
    assert together == [outcomes(decode(made, [record]), 1)[0] for record in records]
    return together


@pytest.mark.parametrize("quickly", [True, False])
@pytest.mark.parametrize("sensitive", ["true", "false"])
def test_keys_are_matched_as_spark_matches_them(spark: SparkSession, quickly: bool, sensitive: str) -> None:
    from pyspark.sql import functions as F

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt_record"}
    frame = spark.createDataFrame([(record.decode(),) for record in RECORDS], "value string")
    before = spark.conf.get("spark.sql.caseSensitive")
    spark.conf.set("spark.sql.caseSensitive", sensitive)
    try:
        found = frame.select(F.from_json("value", f"{DDL}, _corrupt_record string", options).alias("row")).collect()
    finally:
        spark.conf.set("spark.sql.caseSensitive", before or "false")
    theirs = [one["row"].asDict(recursive=True) for one in found]
    assert [row.pop("_corrupt_record") for row in theirs] == [None] * len(RECORDS)
    assert ours(RECORDS, quickly=quickly) == theirs


@pytest.mark.parametrize("quickly", [True, False])
def test_a_required_column_in_another_case_is_a_dead_letter(quickly: bool) -> None:
    made = decoder("json", "id int NOT NULL, n int")
    assert isinstance(made, JsonDecoder)
    if not quickly:
        made._readers = []
    found = outcomes(decode(made, [b'{"ID":1}', b'{"id":1,"N":2}']), 2)
    assert found == ["column id: missing", {"id": 1, "n": None}]
