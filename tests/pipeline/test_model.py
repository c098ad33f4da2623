"""The model: frozen, equal when it says the same, and it knows what needs what."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from millrace.errors import InvalidOption, SourceLocation
from millrace.pipeline.model import (
    UNREADABLE,
    Panel,
    PipelineDef,
    SinkDef,
    SourceDef,
    TableDef,
    Trigger,
    connection,
    freeze,
    parse_trigger,
)
from millrace.pipeline.secret import Secret, holds_password, is_secret


@pytest.mark.parametrize(
    ("text", "trigger", "shown"),
    [
        ("fastest", Trigger(), "fastest"),
        ("5s", Trigger("every", 5.0), "5.0 s"),
        ("every 5s", Trigger("every", 5.0), "5.0 s"),
        ("10 seconds", Trigger("every", 10.0), "10.0 s"),
        ("once", Trigger("once"), "once"),
        ("continuous 1s", Trigger("continuous", 1.0), "continuous 1.0 s"),
        ("realtime", Trigger("realtime"), "realtime"),
        ("realtime 5m", Trigger("realtime", 300.0), "realtime 5 m 0 s"),
    ],
)
def test_triggers(text: str, trigger: Trigger, shown: str) -> None:
    assert parse_trigger(text) == trigger
    assert str(trigger) == shown


@pytest.mark.parametrize("text", ["", "soon", "continuous", "once more", "every", "realtime soon", "-5s"])
def test_what_is_no_trigger(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_trigger(text)


def test_places_make_no_difference() -> None:
    one = SourceDef(
        "a", connection("kafka", "a", {"x": 1}, place=SourceLocation("a.py", 1)), place=SourceLocation("a.py", 1)
    )
    other = SourceDef(
        "a", connection("kafka", "a", {"x": 1}, place=SourceLocation("b.yaml", 7)), place=SourceLocation("b.yaml", 7)
    )
    assert one == other


def test_options_have_no_order_and_none_is_no_option() -> None:
    one = connection("kafka", "a", {"b": 1, "a": [1, {"y": 2, "x": None}], "c": None})
    assert one == connection("kafka", "a", {"a": (1, {"x": None, "y": 2}), "b": 1})
    assert freeze({1: "a", "1b": ["c"]}) == (("1", "a"), ("1b", ("c",)))


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PipelineDef("p").name = "q"  # type: ignore[misc]


def test_secrets_are_hidden_in_its_repr() -> None:
    made = connection("kafka", "https://me:pw1@host", {"password": "pw2", "config": {"sasl.password": "pw3", "a": "b"}})
    assert "pw" not in repr(made).replace("password", "")
    assert dict(made.options)["password"] == "pw2"
    assert str(Secret("pw")) == "pw"


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "sasl.jaas.config",
        "apiKey",
        "api_key",
        "accessToken",
        "client-secret",
        "ssl.keystore.key",
        "ssl.key.pem",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["key", "key_format", "ssl.keystore.location", "token_file", "topic", "keys", "monkey"]
)
def test_names_of_what_is_no_secret(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    "address",
    [
        "https://me:pw@host/",
        "jdbc:postgresql://host/db?user=me&password=pw",
        "jdbc:sqlserver://host:1433;user=me;trustStorePassword=pw",
        "jdbc:oracle:thin:me/pw@//host:1521/db",
        "https://host/hook?access_token=pw",
    ],
)
def test_addresses_that_hold_a_password(address: str) -> None:
    assert holds_password(address)


@pytest.mark.parametrize(
    "address", ["https://me@host/", "jdbc:postgresql://host/db?user=me", "a:b@c", "s3a://bucket/a"]
)
def test_addresses_that_hold_none(address: str) -> None:
    assert not holds_password(address)


def test_what_could_not_be_read_is_known() -> None:
    assert connection("kafka", "a").readable
    assert not connection("kafka", UNREADABLE).readable
    assert not connection("kafka", "a", {"b": UNREADABLE}).readable
    assert not connection("").readable


CHAIN = PipelineDef(
    "p",
    (SourceDef("Posts", connection("kafka", "p")), SourceDef("other", connection("kafka", "o"))),
    (
        TableDef("tags", ("posts",), "SELECT * FROM posts"),
        TableDef("counts", ("TAGS", "posts", "nothing"), "SELECT 1"),
        TableDef("round", ("about",), "SELECT 1"),
        TableDef("about", ("round",), "SELECT 1"),
    ),
    (SinkDef("COUNTS", connection("console")),),
    (Panel("Tags", "top"),),
)


def test_upstream_is_in_the_order_of_need() -> None:
    assert CHAIN.upstream("Counts") == ["Posts", "tags", "counts"]
    assert CHAIN.upstream("posts") == ["Posts"]
    assert CHAIN.upstream("nothing") == []
    assert set(CHAIN.upstream("round")) == {"round", "about"}


def test_references_are_written_as_what_they_mean() -> None:
    linked = CHAIN.linked()
    assert linked.tables[1].reads == ("tags", "Posts", "nothing")
    assert (linked.sinks[0].table, linked.panels[0].table) == ("counts", "tags")
    assert linked.table("TAGS") is linked.tables[0]
    assert linked.source("posts") is linked.sources[0]
    assert linked.linked() == linked


def test_a_line_of_sql_is_a_line_of_the_file() -> None:
    sql = "SELECT a\nFROM b"
    assert TableDef("t", (), sql, sql_place=SourceLocation("p.yaml", 7)).sql_line(2) == SourceLocation("p.yaml", 8)
    assert TableDef("t", (), sql, place=SourceLocation("p.yaml", 3)).sql_line(2) == SourceLocation("p.yaml", 3)
    folded = TableDef("t", (), "SELECT a FROM b WHERE c", sql_place=SourceLocation("p.yaml", 7), sql_marks=(0, 7, 12))
    assert [folded.sql_line(1, column).line for column in (1, 8, 10, 14, 17, 23)] == [7, 7, 8, 8, 9, 9]
