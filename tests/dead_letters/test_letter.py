"""A dead letter survives its way through headers and through JSON, whatever it holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millrace.dead_letters.letter import (
    MAX_REASON_CHARS,
    DeadLetter,
    dead_topic,
    from_json_line,
    from_record,
    to_headers,
    to_json_line,
)

LETTER = DeadLetter(
    value=b'{"id": 1',
    key=b"k",
    headers=(("trace", b"1"), ("trace", None), ("empty", b"")),
    topic="posts",
    partition=2,
    offset=1234,
    timestamp=1_700_000_000_000,
    reason="not JSON: it ends too early",
    pipeline="trending",
    source="posts",
)

content = some.none() | some.binary(max_size=50)
words = some.text(max_size=30)
number = some.integers(0, 2**62)
marks = some.sampled_from(["millrace.topic", "millrace.reason", "millrace.source", "millrace.timestamp"])
headers = some.lists(some.tuples(words | marks, content), max_size=8).map(tuple)
from_kafka = some.builds(
    DeadLetter,
    value=content,
    key=content,
    headers=headers,
    topic=words,
    partition=some.integers(0, 1000),
    offset=number,
    timestamp=some.none() | number,
    reason=words,
    pipeline=words,
    source=words,
)
from_file = some.builds(
    DeadLetter, value=content, key=content, headers=headers, file=words, reason=words, pipeline=words, source=words
)


def test_the_headers_of_the_original_come_first_and_ours_after_them() -> None:
    assert to_headers(LETTER) == [
        ("trace", b"1"),
        ("trace", None),
        ("empty", b""),
        ("millrace.topic", b"posts"),
        ("millrace.partition", b"2"),
        ("millrace.offset", b"1234"),
        ("millrace.timestamp", b"1700000000000"),
        ("millrace.reason", b"not JSON: it ends too early"),
        ("millrace.pipeline", b"trending"),
        ("millrace.source", b"posts"),
    ]


@given(from_kafka)
def test_headers_give_the_letter_back(letter: DeadLetter) -> None:
    assert from_record(letter.value, letter.key, to_headers(letter)) == letter


def test_a_letter_that_died_twice_has_its_first_death_among_its_headers() -> None:
    again = DeadLetter(
        value=LETTER.value, headers=tuple(to_headers(LETTER)), topic="retry", partition=0, offset=0, reason="still not"
    )
    read = from_record(again.value, again.key, to_headers(again))
    assert read == again
    assert from_record(LETTER.value, LETTER.key, read.headers) == LETTER


@pytest.mark.parametrize(
    "strange",
    [
        None,
        [],
        [("trace", b"1")],
        to_headers(LETTER)[:-1],
        [*to_headers(LETTER), ("trace", b"1")],
        [(name, b"x" if name == "millrace.offset" else content) for name, content in to_headers(LETTER)],
        [(name, None) for name, _ in to_headers(LETTER)],
    ],
)
def test_a_record_without_our_headers_is_no_letter(strange: list[tuple[str, bytes | None]] | None) -> None:
    assert from_record(b"v", None, strange) is None


@given(from_kafka | from_file)
def test_a_line_gives_the_letter_back(letter: DeadLetter) -> None:
    line = to_json_line(letter, buried=1)
    assert line.count(b"\n") == 1
    assert from_json_line(line) == letter


def test_a_value_that_is_text_can_be_read_in_the_line() -> None:
    assert json.loads(to_json_line(LETTER))["text"] == '{"id": 1'
    assert "text" not in json.loads(to_json_line(DeadLetter(value=b"\xff", file="a.json", reason="")))


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[]", b"null", b"7", b'{"value": 1}', b"\xff", to_json_line(LETTER)[:-20]]
)
def test_a_line_that_is_no_letter_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="no dead letter"):
        from_json_line(line)


def test_a_reason_that_quotes_broken_text_or_too_much_of_it_is_still_written() -> None:
    long = DeadLetter(value=b"", topic="t", partition=0, offset=0, reason="\ud800" + "x" * 5000)
    read = from_record(b"", None, to_headers(long))
    assert read is not None
    assert read.reason.startswith("\\ud800xxx")
    assert len(read.reason) < MAX_REASON_CHARS + 10
    assert from_json_line(to_json_line(long)).reason.startswith("\\ud800xxx")


def test_names() -> None:
    assert dead_topic("posts") == "posts.dead"
    assert LETTER.origin == "posts[2]@1234"
    assert DeadLetter(value=b"", file="in/a.csv", reason="").origin == "in/a.csv"
