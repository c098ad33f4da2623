"""Errors cross from a worker to the driver as text."""

from __future__ import annotations

from millrace.errors import InvalidSchema, RunError, SinkFailed, SourceLocation
from millrace.errors.transport import from_transport, to_transport


def test_every_part_arrives() -> None:
    error = InvalidSchema("no such\ntype", why="it is «new»", hint="change it", place=SourceLocation("a.yaml", 3))
    text = f"Traceback (most recent call last):\nTransportedError: {to_transport(error)}\n SQLSTATE: 38000"
    restored = from_transport(text)
    assert isinstance(restored, InvalidSchema)
    assert restored.lines() == error.lines()
    assert restored.message == error.message


def test_the_class_that_a_function_raised_arrives() -> None:
    restored = from_transport(str(to_transport(SinkFailed("save raised", exception="ReadTimeout"))))
    assert isinstance(restored, SinkFailed)
    assert restored.exception == "ReadTimeout"


def test_the_error_that_was_raised_last_counts() -> None:
    """Python prints the cause of an exception before the exception itself."""
    chained = (
        "millrace.errors.kafka.KafkaFailed: the first\n\nDuring handling of the above exception, another occurred:\n\n"
        "millrace.errors.input.InvalidOption: the second"
    )
    error = from_transport(chained)
    assert error
    assert (error.condition, error.message) == ("option.invalid", "the second")


def test_text_that_carries_no_error() -> None:
    assert from_transport("ValueError: millrace.errors") is None
    assert from_transport("millrace-error:{broken") is None
    assert to_transport(ValueError("x")).args == ("x",)


def test_a_class_of_another_version_is_still_an_error() -> None:
    error = from_transport("millrace.errors.kafka.NoLongerKnown: gone")
    assert type(error) is RunError
    assert from_transport("millrace.errors.base.SourceLocation: no error") is not None
