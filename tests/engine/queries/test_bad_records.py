"""What is told of a bad record on its way to be buried."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from millrace.dead_letters.letter import DeadLetter
from millrace.engine.queries.bad_records import BadRecordPolicy, DeadLetterFilter, to_error_column
from millrace.engine.queries.decoding import Decoding, DecodingWithErrors
from millrace.formats.arrow_types import arrow_schema
from millrace.formats.json import Json
from millrace.pipeline.schema_ddl import parse_ddl

BAD = BadRecordPolicy("dead_letter", None, "p", "s")
PLAIN = DeadLetter(
    value=b"{", reason="not JSON", topic="t", partition=1, offset=7, timestamp=0, pipeline="p", source="s"
)


@pytest.mark.parametrize(
    "letter",
    [
        PLAIN,
        replace(PLAIN, value=None),
        replace(PLAIN, value=b"\xff\x00", key=b"", headers=(("a", None), ("a", b"\xfe"), ("é", b""))),
        replace(PLAIN, topic=None, partition=None, offset=None, file="kinesis://s/shard/1"),
        replace(PLAIN, reason='column "n": ' + "\u2028\n", timestamp=None),
    ],
    ids=["plain", "no value", "key and headers", "elsewhere", "reason"],
)
def test_a_letter_arrives_as_it_was_told(letter: DeadLetter) -> None:
    assert DeadLetterFilter(BAD)._letter(json.loads(to_error_column(letter))) == letter


def test_bad_records_come_after_the_rows_of_a_block_each_with_its_place() -> None:
    columns = parse_ddl("n int, tags array<string>, by struct<id: int NOT NULL>, topic string")
    schema = parse_ddl("n int, tags array<string>, by struct<id: int NOT NULL>")
    decoding = Decoding(Json(), schema, ("topic",), columns, BAD)
    telling = DecodingWithErrors(decoding, ("value", "topic", "partition", "offset", "timestamp"))
    values = [b'{"n": 1, "tags": ["a"]}', b"{", b'{"n": 2}', b'{"n": "x"}']
    block = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * 4),
            "partition": pa.array([0] * 4, pa.int32()),
            "offset": pa.array([5, 6, 7, 9]),
            "timestamp": pa.array([0] * 4, pa.timestamp("us", "UTC")),
        }
    )
    clean = block.take(pa.array([0, 2]))
    first, second = telling(iter([block, clean]))
    told_to_spark = [*arrow_schema(columns.nullable()), pa.field("_millrace_letter", pa.string())]
    assert first.schema == second.schema == pa.schema(told_to_spark)
    rows = first.to_pylist()
    assert [(row["n"], row["tags"], row["topic"]) for row in rows] == [
        (1, ["a"], "t"),
        (2, None, "t"),
        (None, None, None),
        (None, None, None),
    ]
    told = [json.loads(row["_millrace_letter"]) if row["_millrace_letter"] else None for row in rows]
    assert told[:2] == [None, None]
    assert [(one["topic"], one["partition"], one["offset"]) for one in told[2:] if one] == [("t", 0, 6), ("t", 0, 9)]
    assert second.column("_millrace_letter").null_count == 2
