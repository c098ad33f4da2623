"""What went wrong in a program: with its own line, and apart from what the end of Spark does to a batch."""

from __future__ import annotations

import json

import pytest

from millrace.dstreams.errors import batch_error, cut_off_error, decoder_failed, failed_by_shutdown, is_cut_off
from millrace.errors import RunError, SourceLocation
from millrace.errors.transport import from_transport

_TRACE = 'Traceback (most recent call last):\n  File "/home/me/mine.py", line 3, in output\n    rdd.count()\n'
_NOTHING = "AttributeError: 'NoneType' object has no attribute 'sc'"
_STOPPED = (
    f'  File "/site-packages/pyspark/context.py", line 9, in runJob\n    self._jsc.sc()\n    ^^^^^^^^^\n{_NOTHING}'
)


@pytest.mark.parametrize(
    "said",
    [
        "py4j.protocol.Py4JJavaError: Job 0 cancelled because SparkContext was shut down",
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
        'because the return value of "org.apache.spark.storage.BlockManagerMaster.driverEndpoint()" is null',
        _STOPPED,
    ],
)
def test_what_spark_says_while_it_ends(said: str) -> None:
    assert failed_by_shutdown(said)
    cut = cut_off_error(f"{_TRACE}{said}", 1000)
    assert is_cut_off(cut)


@pytest.mark.parametrize(
    "said", [_NOTHING, "ValueError: two is too much", "ConnectionRefusedError: [Errno 111] Connection refused"]
)
def test_what_a_program_raises_is_never_taken_for_the_end(said: str) -> None:
    trace = f"{_TRACE}{said}"
    assert cut_off_error(trace, 1000) is None
    error = batch_error(trace, 1000)
    assert error.condition == "function.failed"
    assert not is_cut_off(error)


def test_an_error_of_ours_is_never_taken_for_the_end() -> None:
    assert not failed_by_shutdown("millrace.errors.kafka.KafkaFailed: no | why: SparkContext was shut down")
    assert not is_cut_off(RunError("no"))
    assert not is_cut_off(None)


def test_a_decoder_is_told_by_its_own_line_though_python_itself_raised() -> None:
    def decode(value: bytes) -> object:
        return json.loads(value)

    with pytest.raises(ValueError, match="Expecting value") as raised:
        decode(b"x")
    error = from_transport(str(decoder_failed("value decoder", "offset 3", raised.value)))
    assert error
    assert error.condition == "record.bad"
    assert error.place == SourceLocation(__file__, decode.__code__.co_firstlineno + 1)
