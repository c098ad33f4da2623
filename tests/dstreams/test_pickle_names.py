"""A checkpoint of the version before the packages were renamed can be resumed.

`old_checkpoint/` holds what that version pickled into Spark's checkpoint, with Python 3.11: the sources, and the
functions that Spark calls for a batch.
"""

from __future__ import annotations

import importlib
import pickle
import pickletools
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from millrace.dstreams import OffsetRange, TopicAndPartition, context_tracker
from millrace.dstreams.kafka_rdd import RddDecoder
from millrace.dstreams.kafka_source import KafkaStreamSource
from millrace.dstreams.kafka_types import utf8_decoder
from millrace.dstreams.kinesis import KinesisStreamSource
from millrace.dstreams.pickle_names import OLD_NAMES

OLD = Path(__file__).with_name("old_checkpoint")
# Pickled functions hold bytecode: they can be called by the Python that wrote them, as by Spark itself.
FUNCTIONS = {"kafka_records", "kinesis_records", "kafka_output"} if sys.version_info[:2] == (3, 11) else set()


@pytest.fixture(autouse=True)
def no_sources_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unpickled here belongs to no context."""
    monkeypatch.setattr(context_tracker, "_registered", [])


def unpickled(name: str) -> Any:
    return pickle.loads((OLD / f"{name}.pickle").read_bytes())  # noqa: S301 - our own


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_an_old_name_is_the_new_object(old: str, new: str) -> None:
    module, _, name = new.rpartition(".")
    old_module, _, old_name = old.rpartition(".")
    reference = f"c{old_module}\n{old_name}\n.".encode()
    assert pickle.loads(reference) is getattr(importlib.import_module(module), name)  # noqa: S301


def test_a_kafka_source() -> None:
    source = unpickled("kafka_source")
    assert type(source) is KafkaStreamSource
    assert source.description() == "Kafka topics t, u"
    assert (source.group, source.without, source.sharing) == ("g", {("u", 1)}, {"t": [source.stream]})
    assert source.empty_input(None) == {"ranges": [["t", 0, 3, 3], ["u", 0, 0, 0]]}
    assert source.parameters.cluster().bootstrap == "localhost:1"
    assert "hidden" in source.parameters.for_spark()["kafka.sasl.jaas.config"]
    assert type(source.decoding) is RddDecoder
    assert source.decoding.value is utf8_decoder
    assert vars(source).keys() == vars(KafkaStreamSource(source.parameters, ["t"], {}, source.decoding)).keys()
    assert context_tracker._registered == [(source, None)]


def test_a_kinesis_source() -> None:
    source = unpickled("kinesis_source")
    assert type(source) is KinesisStreamSource
    assert source.description() == "Kinesis stream clicks as app"
    assert source._door.region == "eu-central-1"
    assert source._door.where == "Kinesis in eu-central-1"
    new = KinesisStreamSource(source._door, "app", "clicks", latest=True, interval=5.0)
    assert vars(source).keys() == vars(new).keys()
    assert source.empty_input(None) == new.empty_input(None)


class Tracker:
    """Records which batches are asked for."""

    def batch_rdd(self, source: Any, time: int, context: Any) -> Any:
        return source.description(), time, context

    def batch_input(self, source: Any, time: int) -> Any:
        del source, time
        return {"ranges": [["t", 0, 3, 5]]}


@pytest.mark.parametrize("name", ["kafka_source", "kinesis_source", "kafka_records", "kinesis_records", "kafka_output"])
def test_every_module_that_a_pickle_names_is_known(name: str) -> None:
    named = {word for _, word, _ in pickletools.genops((OLD / f"{name}.pickle").read_bytes()) if isinstance(word, str)}
    modules = {word for word in named if word.startswith("millrace.")}
    assert modules - sys.modules.keys() <= {"millrace.dstreams.inflow"}, "it is the __module__ of a function only"


@pytest.mark.parametrize("name", sorted(FUNCTIONS - {"kafka_output"}))
def test_the_function_that_creates_a_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rdd:
        context = "the context"

    monkeypatch.setattr(context_tracker, "_trackers", [Tracker()])
    function, _, _ = unpickled(name)
    description, time, context = function(datetime.fromtimestamp(2), Rdd())
    assert (time, context) == (2000, "the context")
    assert description in ("Kafka topics t, u", "Kinesis stream clicks as app")


@pytest.mark.parametrize("name", sorted(FUNCTIONS & {"kafka_output"}))
def test_an_output_knows_its_offset_ranges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rdd:
        _jrdd = ctx = _jrdd_deserializer = None

    monkeypatch.setattr("pyspark.core.rdd.RDD.__init__", lambda *_: None)
    monkeypatch.setattr(context_tracker, "_trackers", [Tracker()])
    function, _, _ = unpickled(name)
    (result,) = function(datetime.fromtimestamp(2), Rdd())
    assert result == (OffsetRange("t", 0, 3, 5), 2, True)
    assert result[0].topicAndPartition() == TopicAndPartition("t", 0)


def test_a_program_that_imports_us_only_where_it_creates_its_context() -> None:
    """It resumes without that import: unpickling is the first use of the package."""
    load = f"import pickle; print(type(pickle.load(open({str(OLD / 'kafka_source.pickle')!r}, 'rb'))).__name__)"
    run = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "KafkaStreamSource"
