"""Standard output as a sink for records."""

from __future__ import annotations

import pytest

from millrace.clients.kafka.record import Record
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.console import ConsoleRecordSink
from millrace.errors import MillraceError


def test_values_are_printed_a_line_each(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    answers: list[MillraceError | None] = []
    sink = ConsoleRecordSink(SinkTarget())
    sink.write([Record(b"a"), Record(None), Record(b"\xff")], answers.append)
    assert capfdbinary.readouterr().out == b"a\n\n\xff\n"
    assert answers == [None]
    assert sink.close().delivered == 3
