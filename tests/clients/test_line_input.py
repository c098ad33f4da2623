"""Lines of text as records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.clients.kafka.record import Record
from millrace.clients.line_input import LineFormat, line_records, split_lines
from millrace.errors import InvalidOption, NotUtf8


class Chunks:
    """A stream that gives what it has piece by piece, as a pipe does."""

    def __init__(self, *chunks: bytes) -> None:
        self.left = [chunk for chunk in chunks if chunk]

    def __iter__(self) -> Iterator[bytes]:
        while self.left:
            yield self.left.pop(0)


def split(text: bytes, form: LineFormat | None = None) -> list[Record]:
    return [record for batch in line_records(split_lines([text]), form or LineFormat()) for record in batch]


def values(text: bytes, form: LineFormat | None = None) -> list[bytes | None]:
    return [record.value for record in split(text, form)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n", [b""]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"a\rb\n", [b"a\rb"]),
        ("zoë ☕\n".encode(), ["zoë ☕".encode()]),
        (b"a\x00b\n", [b"a\x00b"]),
        ("a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc".encode()]),
    ],
)
def test_lines(text: bytes, lines: list[bytes]) -> None:
    assert values(text) == lines


def test_one_key_for_all() -> None:
    assert [record.key for record in split(b"a\nb\n", LineFormat(key="k"))] == [b"k", b"k"]


@pytest.mark.parametrize(
    ("separator", "line", "key", "value"),
    [
        (":", b"k:v", b"k", b"v"),
        (":", b"k:v:w", b"k", b"v:w"),
        (":", b":v", b"", b"v"),
        (":", b"k:", b"k", b""),
        ("\t", b"k\tv", b"k", b"v"),
        (" => ", b"k => v", b"k", b"v"),
        ("→", "k→v".encode(), b"k", b"v"),
    ],
)
def test_the_first_separator_ends_the_key(separator: str, line: bytes, key: bytes, value: bytes) -> None:
    assert split(line, LineFormat(key_separator=separator)) == [Record(value, key)]


def test_a_line_without_the_separator_is_told_after_the_good_ones() -> None:
    batches = line_records(split_lines([b"a:1\nb:2\nc\nd:4\n"]), LineFormat(key_separator=":"))
    assert next(batches) == [Record(b"1", b"a"), Record(b"2", b"b")]
    with pytest.raises(InvalidOption, match="line 3"):
        next(batches)


def test_a_chosen_text_is_null() -> None:
    assert values(b"a\nNULL\nNULLS\n", LineFormat(null="NULL")) == [b"a", None, b"NULLS"]
    assert split(b"k:NULL\n", LineFormat(key_separator=":", null="NULL")) == [Record(None, b"k")]
    assert values(b"a\n\n", LineFormat(null="")) == [b"a", None]


def test_headers_and_partition_are_on_every_record() -> None:
    form = LineFormat(headers=[("a", "zoë"), ("a", ""), ("b", "1")], partition=2)
    headers = (("a", "zoë".encode()), ("a", b""), ("b", b"1"))
    assert split(b"a\nb\n", form) == [Record(line, headers=headers, partition=2) for line in (b"a", b"b")]


@pytest.mark.parametrize(
    "form",
    [
        {"key": "k", "key_separator": ":"},
        {"key_separator": ""},
        {"key": "\udcff"},
        {"null": "\udcff"},
        {"headers": [("\udcff", "")]},
        {"headers": [("h", "\udcff")]},
    ],
)
def test_what_cannot_be_a_format(form: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        LineFormat(**form)


@pytest.mark.parametrize("bad", [b"\xff", b"caf\xe9", b"\xe2\x98", b"\xed\xa0\x80", b"\xc0\xaf"])
@pytest.mark.parametrize("end", [b"\nd\n", b""])
def test_a_line_that_is_not_utf8_is_told_after_the_good_ones(bad: bytes, end: bytes) -> None:
    batches = line_records(split_lines([b"a\nb\n" + bad + end]), LineFormat())
    assert [record.value for record in next(batches)] == [b"a", b"b"]
    with pytest.raises(NotUtf8, match="line 3") as raised:
        next(batches)
    assert raised.value.condition == "input.not-utf8"


def test_lines_are_counted_across_chunks() -> None:
    with pytest.raises(NotUtf8, match="line 4"):
        list(line_records(split_lines(Chunks(b"a\nb", b"\nc", b"\n\xff\n")), LineFormat()))


def test_only_line_feeds_end_lines_when_told_so() -> None:
    assert list(split_lines([b"a\r\nb\r", b"\nc"], crlf=False)) == [[b"a\r"], [b"b\r"], [b"c"]]


def test_raw_lines_need_not_be_utf8() -> None:
    assert values(b"\xff\xfe\n\x80\r\n", LineFormat(raw=True)) == [b"\xff\xfe", b"\x80"]
    assert split(b"\xff:\xfe", LineFormat(raw=True, key_separator=":")) == [Record(b"\xfe", b"\xff")]


def test_whole_lines_are_given_before_the_rest_has_come() -> None:
    stream = Chunks(b"a\nb\nhal", b"f\n")
    batches = line_records(split_lines(stream), LineFormat())
    assert [record.value for record in next(batches)] == [b"a", b"b"]
    assert stream.left == [b"f\n"]
    assert [record.value for record in next(batches)] == [b"half"]


def test_half_a_line_is_not_given_when_reading_was_stopped() -> None:
    stop = threading.Event()

    def interrupted() -> Iterator[bytes]:
        yield b"a\nhal"
        stop.set()

    assert list(split_lines(interrupted(), stop)) == [[b"a"]]


TEXT = st.lists(st.sampled_from([b"\n", b"\r", b"a", b":", b"\xe2", b"\x98", b"\x95", b"\xff", b""])).map(b"".join)


def told(stream: Chunks, form: LineFormat) -> tuple[list[Record], str | None]:
    found: list[Record] = []
    try:
        for batch in line_records(split_lines(stream), form):
            found += batch
    except (NotUtf8, InvalidOption) as error:
        return found, error.message
    return found, None


@given(
    text=st.one_of(st.binary(), TEXT),
    cuts=st.lists(st.integers(0, 40)),
    form=st.sampled_from([LineFormat(), LineFormat(raw=True), LineFormat(key_separator=":", null="a")]),
)
def test_it_does_not_matter_how_the_bytes_come(text: bytes, cuts: list[int], form: LineFormat) -> None:
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert told(Chunks(*pieces), form) == told(Chunks(text), form)


@given(text=st.one_of(st.binary(), TEXT))
def test_lines_are_what_stands_between_newlines(text: bytes) -> None:
    *whole, rest = text.split(b"\n")
    expected = [line.removesuffix(b"\r") for line in whole] + ([rest] if rest else [])
    assert values(text, LineFormat(raw=True)) == expected
