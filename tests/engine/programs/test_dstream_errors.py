"""What Spark refuses of a DStream program says what to do, and where."""

from __future__ import annotations

import pytest

from millrace.engine.programs.dstream_monitor import explain_dstream_error

_CALLED = "An error occurred while calling o32.start.\n: "
_REQUIRED = f"{_CALLED}java.lang.IllegalArgumentException: requirement failed: "
_AT = "\n\tat org.apache.spark.Some.some(Some.scala:1)\nCaused by: java.io.EOFException"


@pytest.mark.parametrize(
    ("said", "condition", "words"),
    [
        (
            f"{_REQUIRED}The checkpoint directory has not been set. Please set it.{_AT}",
            "dstreams.invalid",
            "ssc.checkpoint(FOLDER)",
        ),
        (
            "windowDuration must be multiple of the parent dstream's slide (batch) duration (2000 ms)",
            "dstreams.invalid",
            "the length of a window is not a multiple of 2 s",
        ),
        (
            "slideDuration must be multiple of the parent dstream's slide (batch) duration (500 ms)",
            "dstreams.invalid",
            "the slide of a window is not a multiple of 0.5 s",
        ),
        (
            f"{_CALLED}org.apache.spark.SparkException: Failed to read checkpoint from directory here/ck{_AT}",
            "checkpoint.unusable",
            "no checkpoint in here/ck can be read",
        ),
        (
            f"{_REQUIRED}Checkpoint directory does not exist: file:/old/ck/rdd-7{_AT}",
            "checkpoint.unusable",
            "refers to /old/ck/rdd-7",
        ),
    ],
)
def test_what_is_refused_is_told_with_advice(said: str, condition: str, words: str) -> None:
    with pytest.raises(RuntimeError) as raising:
        raise RuntimeError(said)
    error = explain_dstream_error(raising.value)
    assert error
    assert (error.condition, error.exit_code) == (condition, 2)
    shown = "\n".join(error.lines())
    assert words in shown
    assert "\tat " not in shown
    assert error.why
    assert error.hint
    assert error.place
    assert error.place.file == __file__


def test_other_exceptions_stay_what_they_are() -> None:
    assert explain_dstream_error(ValueError("windowDuration is odd")) is None


def test_an_error_that_cannot_say_what_it_is_is_none_of_these() -> None:
    """One of Java's asks its JVM, which may be gone."""

    class Silent(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert explain_dstream_error(Silent()) is None
