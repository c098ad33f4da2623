"""What is heard of Spark's JVM, and what is not."""

from __future__ import annotations

import logging

import pytest
from py4j.protocol import Py4JNetworkError

from millrace.engine.session.jvm import silence_py4j

PROXY = "There was an exception while executing the Python Proxy on the Python Side."


def test_calls_that_are_cut_off_are_not_told_and_what_a_function_raises_is(caplog: pytest.LogCaptureFixture) -> None:
    silence_py4j()
    logger = logging.getLogger("py4j.clientserver")
    for error in (Py4JNetworkError("Error while sending or receiving"), ValueError("of a function")):
        try:
            raise error
        except Exception:
            logger.exception(PROXY)
    logger.error("Error while sending command.")
    assert [record.exc_info and str(record.exc_info[1]) for record in caplog.records] == ["of a function"]
