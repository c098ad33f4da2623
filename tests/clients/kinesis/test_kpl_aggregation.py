"""Packed records of the Kinesis Producer Library."""

from __future__ import annotations

from hashlib import md5

from hypothesis import given
from hypothesis import strategies as st

from millrace.clients.kinesis.kpl_aggregation import MAGIC, aggregate, deaggregate


@given(st.lists(st.tuples(st.text(min_size=1, max_size=20), st.binary(max_size=300)), min_size=1, max_size=30))
def test_what_was_packed_is_taken_apart(records: list[tuple[str, bytes]]) -> None:
    assert deaggregate(aggregate(records)) == records


@given(st.binary(max_size=200))
def test_anything_else_is_a_plain_record(data: bytes) -> None:
    assert deaggregate(data) is None
    assert deaggregate(MAGIC + data) is None
    assert deaggregate(aggregate([("k", b"v")])[:-1] + b"?") is None


@given(st.binary(max_size=100))
def test_a_message_that_is_none_is_a_plain_record(message: bytes) -> None:
    found = deaggregate(MAGIC + message + md5(message, usedforsecurity=False).digest())
    assert found is None or isinstance(found, list)


def test_the_form_is_that_of_the_library() -> None:
    """Two records under two keys, the second with a hash key and a tag: by hand, after the message's definition."""
    message = (
        b"\x0a\x01a\x0a\x01b\x12\x015\x1a\x07\x08\x00\x1a\x03one\x1a\x0d\x08\x01\x10\x00\x1a\x03two\x22\x02\x0a\x00"
    )
    data = MAGIC + message + md5(message, usedforsecurity=False).digest()
    assert deaggregate(data) == [("a", b"one"), ("b", b"two")]
