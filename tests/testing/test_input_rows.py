"""Rows become messages as their source would have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.connectors.base.registry import make_source
from millrace.errors import FileUnusable, InvalidTest
from millrace.pipeline.model import connection
from millrace.testing.input_rows import DEFAULT_TIMESTAMP, RowEncoder


def shape(connector: str = "kafka", argument: Any = "posts", **options: Any) -> RowEncoder:
    reader, mistakes = make_source(connection(connector, argument, options))
    assert reader is not None
    assert not mistakes
    return RowEncoder("posts", reader)


def values(made: RowEncoder, rows: Any, folder: Path = Path()) -> list[Any]:
    return [message["value"] for message in made.messages(rows, folder)]


JSON = "id string, n int, at timestamp"


def test_columns_are_written_in_the_format_of_the_source() -> None:
    row = {"id": "a", "n": 1}
    assert json.loads(values(shape(schema=JSON), [row])[0]) == row
    assert values(shape(schema="id string, n int, x string", format="csv", separator=";"), [row]) == [b"a;1;"]
    assert values(shape("files", "data", format="csv", schema="id string, n int", separator=";"), [row]) == [b"a;1"]
    assert values(shape(format="text"), ["a b", {"value": "c"}]) == [b"a b", b"c"]
    assert json.loads(values(shape("rate", 1), [{"value": 3}])[0]) == {"value": 3}
    with pytest.raises(InvalidTest):
        values(shape(format="raw"), [{"id": "a"}])


def test_texts_and_bytes_are_messages_as_they_are() -> None:
    assert values(shape(schema=JSON), ["{broken", b"\xff"]) == [b"{broken", b"\xff"]
    assert values(shape(schema=JSON), "a\n\nb\n") == [b"a", b"b"]
    assert values(shape(schema=JSON), [{"value": "{broken", "key": "k"}]) == [b"{broken"]


def test_what_a_record_carries_is_given_or_always_the_same() -> None:
    made = shape(schema=JSON)
    first, second = made.messages([{"id": "a"}, {"id": "b", "key": "k", "timestamp": 1777896000000}], Path())
    assert (first["topic"], first["partition"], first["offset"]) == ("posts", 0, 0)
    assert first["timestamp"] == DEFAULT_TIMESTAMP
    assert (second["offset"], second["key"]) == (1, b"k")
    assert second["timestamp"].isoformat() == "2026-05-04T12:00:00+00:00"
    assert "key" not in json.loads(second["value"])


def test_files_of_every_form(tmp_path: Path) -> None:
    made = shape(schema=JSON)
    (tmp_path / "rows.csv").write_text("id,n,at\na,1,2026-05-04T12:00:00Z\nb,,\n")
    assert [json.loads(one) for one in values(made, {"csv": "rows.csv"}, tmp_path)] == [
        {"id": "a", "n": 1, "at": "2026-05-04T12:00:00Z"},
        {"id": "b"},
    ]
    lines = shape(format="csv", schema="id string, n int, at timestamp")
    assert values(lines, {"csv": "rows.csv"}, tmp_path)[1] == b"b,,"
    (tmp_path / "rows.json").write_text('{"id": "a"}\n{broken\n')
    assert values(made, {"json": "rows.json"}, tmp_path) == [b'{"id": "a"}', b"{broken"]
    (tmp_path / "array.json").write_text('[{"id": "a"}]')
    assert values(made, {"json": "array.json"}, tmp_path) == [b'{"id":"a"}']
    (tmp_path / "slice.jsonl").write_text('{"value_base64": "/w==", "key": "k", "offset": 9}\n')
    (message,) = made.messages({"records": "slice.jsonl"}, tmp_path)
    assert (message["value"], message["key"], message["offset"]) == (b"\xff", b"k", 9)


@pytest.mark.parametrize("rows", [3, {"id": "a"}, [3], b"x"])
def test_what_is_no_rows(rows: Any) -> None:
    with pytest.raises(InvalidTest):
        values(shape(schema=JSON), rows)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable):
        values(shape(schema=JSON), {"json": "none.json"}, tmp_path)


NESTED = "id string, who struct<name: string, tags: array<struct<tag: string>>>, more map<string, struct<n: int>>"


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"idd": "a"}, "idd"),
        ({"Id": "a"}, "Id"),
        ({"who": {"nmae": "x"}}, "who.nmae"),
        ({"who": {"tags": [{"tag": "a"}, {"tga": "b"}]}}, "who.tags.tga"),
        ({"more": {"x": {"m": 1}}}, "more.x.m"),
        ({"value": "{}", "kye": "k"}, "kye"),
    ],
)
def test_a_column_that_the_source_does_not_have_is_a_mistake(row: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidTest, match=name):
        values(shape(schema=NESTED), [row])
    known = {"id": "a", "who": {"name": "x", "tags": [{"tag": "t"}]}, "more": {"any": {"n": 1}}, "key": "k"}
    assert values(shape(schema=NESTED), [known])


def test_such_a_column_is_found_in_lines_of_csv_and_in_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidTest, match="nn"):
        values(shape(format="csv", schema="id string, n int"), [{"id": "a", "nn": 1}])
    (tmp_path / "rows.json").write_text('{"id": "a"}\n{broken\n{"idd": "b"}\n')
    (tmp_path / "rows.csv").write_text("id,nn\na,1\n")
    (tmp_path / "words.csv").write_text("id,n\na,x\n")
    (tmp_path / "short.csv").write_text("id,n\na\n")
    for form, name, line in (("json", "rows.json", 3), ("csv", "rows.csv", 2), ("csv", "words.csv", 2)):
        with pytest.raises(InvalidTest) as raised:
            values(shape(schema=JSON), {form: name}, tmp_path)
        assert str(raised.value.place) == f"{tmp_path / name}:{line}"
    with pytest.raises(FileUnusable):
        values(shape(schema=JSON), {"csv": "short.csv"}, tmp_path)
    assert len(values(shape(schema=JSON), {"text": "rows.json"}, tmp_path)) == 3
