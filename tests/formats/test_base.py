"""Formats are found by name, and cost nothing until something is decoded."""

from __future__ import annotations

import dataclasses
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.errors import InvalidOption, UnknownName
from millrace.formats.base import FORMATS
from millrace.pipeline.schema import parse_schema


def test_the_formats() -> None:
    assert FORMATS.names() == ["avro", "csv", "json", "raw", "text"]


@pytest.mark.parametrize("name", ["avro", "csv", "json", "raw", "text"])
def test_a_format_can_be_sent_to_a_worker(name: str) -> None:
    made = FORMATS.load(name)()
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes


def test_an_unknown_format_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownName) as raised:
        FORMATS.load("jason")
    assert "'json'" in (raised.value.hint or "")


def test_only_avro_is_written_here() -> None:
    with pytest.raises(InvalidOption):
        FORMATS.load("json")().encoder(pa.schema([("a", pa.int64())]))


def test_whoever_only_checks_a_pipeline_loads_no_decoder() -> None:
    program = (
        "import sys; from millrace.formats.base import FORMATS\n"
        "for name in ('avro', 'csv', 'json', 'raw', 'text'): FORMATS.load(name)()\n"
        "sys.exit(bool({'pyarrow', 'fastavro', 'httpx', 'pyspark'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_decoder_of_json_needs_neither_spark_nor_a_parser_of_sql() -> None:
    sent = pickle.dumps((FORMATS.load("json")(), parse_schema("a int")))
    program = (
        f"import pickle, sys, pyarrow as pa; made, schema = pickle.loads({sent!r})\n"
        "made.decoder(schema).decode(pa.array([b'{}']))\n"
        "sys.exit(bool({'pyspark', 'sqlglot', 'fastavro', 'httpx'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_format_and_option_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
    for name in FORMATS.names():
        assert f"| `{name}` |" in page
        for option in dataclasses.fields(FORMATS.load(name)):
            assert f"| `{option.name}` |" in page


def test_the_schema_of_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
    (schema,) = re.findall(r"^ +schema: (.+)$", page, re.MULTILINE)
    assert FORMATS.load("json")().columns(parse_schema(schema)).names == ("id", "at", "price", "tags")
