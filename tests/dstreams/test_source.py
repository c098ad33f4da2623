"""A stream goes into no checkpoint after a batch that could not be made, and no traceback is printed for that."""

from __future__ import annotations

import pickle

import pytest

from millrace.dstreams import context_tracker
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_rdd import RddDecoder
from millrace.dstreams.kafka_source import KafkaStreamSource
from millrace.dstreams.kafka_types import utf8_decoder
from millrace.errors import RunError


def test_no_checkpoint_and_no_traceback_after_a_batch_that_could_not_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.serializers import CloudPickleSerializer

    parameters = Parameters.of({"metadata.broker.list": "localhost:1"})
    source = KafkaStreamSource(parameters, ["t"], {("t", 0): 1}, RddDecoder(utf8_decoder, utf8_decoder), group="g")
    monkeypatch.setattr(context_tracker, "current_failure", lambda: RunError("not today"))
    with pytest.raises(pickle.PicklingError, match="not today"):
        CloudPickleSerializer().dumps(source)
    assert capsys.readouterr().err == ""
