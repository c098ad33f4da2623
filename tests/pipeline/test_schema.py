"""Spark's DDL, read without Spark."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import InvalidSchema
from millrace.pipeline.schema import SIMPLE, Array, Decimal, Field, Map, Schema, Simple, Struct, Type, parse_schema

STRING, INT, DOUBLE = Simple("string"), Simple("int"), Simple("double")


def refused(text: str) -> InvalidSchema:
    """The error that a text gets."""
    with pytest.raises(InvalidSchema) as raised:
        parse_schema(text)
    assert raised.value.condition == "schema.invalid"
    return raised.value


def test_every_kind_of_type() -> None:
    schema = parse_schema(
        "id string NOT NULL, at timestamp, tags array<string>, pos struct<lat: double, lon: double NOT NULL>, "
        "m map<string,int>, price decimal(10,2)"
    )
    assert schema == Schema(
        (
            Field("id", STRING, nullable=False),
            Field("at", Simple("timestamp")),
            Field("tags", Array(STRING)),
            Field("pos", Struct((Field("lat", DOUBLE), Field("lon", DOUBLE, nullable=False)))),
            Field("m", Map(STRING, INT)),
            Field("price", Decimal(10, 2)),
        )
    )
    assert schema.names == ("id", "at", "tags", "pos", "m", "price")


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_types(name: str) -> None:
    assert parse_schema(f"a {name}") == parse_schema(f"A {name.upper()}".replace("A ", "a ", 1))
    assert parse_schema(f"a {name}").fields[0].type == Simple(name)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("byte", "tinyint"),
        ("short", "smallint"),
        ("integer", "int"),
        ("long", "bigint"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("dec(5,2)", "decimal(5,2)"),
    ],
)
def test_other_names_of_types(alias: str, name: str) -> None:
    assert parse_schema(f"a {alias}").ddl() == f"a {name}"


def test_comments_are_ignored() -> None:
    text = "a int COMMENT 'it''s an int' NOT NULL, -- said in SQL\n /* here */ b struct<x: int COMMENT \"x\"> NOT NULL"
    assert parse_schema(text) == parse_schema("a int NOT NULL, b struct<x int> NOT NULL")


def test_names_may_be_words_of_sql_or_stand_in_backticks() -> None:
    schema = parse_schema("date date, timestamp timestamp, order int, comment string, `a ``b``` int, `é-1` int")
    assert schema.names == ("date", "timestamp", "order", "comment", "a `b`", "é-1")


def test_the_text_of_a_struct_is_a_schema() -> None:
    assert parse_schema("struct<a: int, b: string>") == parse_schema("a int, b string")


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("  \n ", 2, 2),
        ("id strng", 1, 4),
        ("id string,\n  at timestmp", 2, 6),
        ("id", 1, 3),
        ("id string,", 1, 11),
        ("id, at timestamp", 1, 3),
        ("id string id2 string", 1, 11),
        ("a array<int", 1, 12),
        ("a array<>", 1, 3),
        ("a struct<>", 1, 3),
        ("a map<string>", 1, 13),
        ("a map<map<int,int>,int>", 1, 7),
        ("a decimal(39,0)", 1, 11),
        ("a decimal(5,6)", 1, 11),
        ("a decimal(-1)", 1, 11),
        ("a int, A string", 1, 8),
        ("p struct<x int, X int>", 1, 17),
        ("a variant", 1, 3),
        ("a varchar(10)", 1, 3),
        ("a-b int", 1, 2),
        ("a.b int", 1, 2),
        ("a int NOT", 1, 10),
        ("a int COMMENT b", 1, 15),
        ("a 'int", 1, 3),
        ("`a int", 1, 1),
        ("a int; b int", 1, 6),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, line: int, column: int) -> None:
    error = refused(text)
    assert (error.line, error.column) == (line, column)


@pytest.mark.parametrize(("text", "meant"), [("a strng", "string"), ("a in", "int"), ("a timestmp", "timestamp")])
def test_a_misspelt_type_gets_the_nearest_one(text: str, meant: str) -> None:
    assert f"{meant!r}" in (refused(text).hint or "")


def test_nesting_without_end_is_refused() -> None:
    assert "deep" in refused("a " + "array<" * 5000 + "int" + ">" * 5000).message


@settings(deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="ab <>,():`'\"\n.-array struct map int NOT NULL 1"))
def test_any_text_is_a_schema_or_a_mistake(text: str) -> None:
    try:
        schema = parse_schema(text)
    except InvalidSchema as error:
        place = (error.line, error.column)
    else:
        place = (1, 1)
        assert parse_schema(schema.ddl()) == schema
    assert all(place)


def once(fields: list[Field]) -> tuple[Field, ...]:
    """The fields without those whose name is there already."""
    return tuple({field.name.lower(): field for field in fields}.values())


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
types: st.SearchStrategy[Type] = st.recursive(
    st.sampled_from([Simple(name) for name in SIMPLE])
    | st.integers(1, 38).flatmap(lambda digits: st.builds(Decimal, st.just(digits), st.integers(0, digits))),
    lambda inner: (
        st.builds(Array, inner)
        | st.builds(Map, st.just(STRING), inner)
        | st.builds(Struct, st.lists(st.builds(Field, names, inner, st.booleans()), min_size=1, max_size=3).map(once))
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.lists(st.builds(Field, names, types, st.booleans()), min_size=1, max_size=4).map(once).map(Schema))
def test_its_ddl_gives_the_same_schema_again(schema: Schema) -> None:
    assert parse_schema(schema.ddl()) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema  # noqa: S301 - our own bytes


def test_a_schema_that_is_sent_to_a_worker_brings_no_parser() -> None:
    sent = pickle.dumps(parse_schema("a int, b array<string>"))
    program = f"import pickle, sys; pickle.loads({sent!r}).ddl(); sys.exit('sqlglot' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
