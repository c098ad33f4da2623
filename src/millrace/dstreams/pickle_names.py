"""Names that checkpoints of earlier versions use, so that this version resumes them.

Spark's checkpoint of a StreamingContext holds pickled functions and sources, which name our modules and classes. The
modules that no longer exist are registered in `sys.modules` with the objects that checkpoints refer to; classes that
were renamed in their module are set as attributes.

A change of a name that is pickled adds a row to `OLD_NAMES`. The attributes of `StreamSource` and its subclasses, of
`Parameters` and of `RddDecoder` are pickled by name as well, and keep theirs.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

OLD_NAMES = {
    "millrace.dstreams.course.rdd_of": "millrace.dstreams.context_tracker.batch_rdd",
    "millrace.dstreams.course.note_of": "millrace.dstreams.context_tracker.batch_input",
    "millrace.dstreams.kafka_inflow.KafkaInflow": "millrace.dstreams.kafka_source.KafkaStreamSource",
    "millrace.dstreams.kafka_inflow.ranges_of": "millrace.dstreams.kafka_source.ranges_of",
    "millrace.dstreams.kinesis.KinesisInflow": "millrace.dstreams.kinesis.KinesisStreamSource",
    "millrace.dstreams.offsets.Broker": "millrace.dstreams.kafka_types.Broker",
    "millrace.dstreams.offsets.KafkaMessageAndMetadata": "millrace.dstreams.kafka_types.KafkaMessageAndMetadata",
    "millrace.dstreams.offsets.OffsetRange": "millrace.dstreams.kafka_types.OffsetRange",
    "millrace.dstreams.offsets.TopicAndPartition": "millrace.dstreams.kafka_types.TopicAndPartition",
    "millrace.dstreams.offsets.utf8_decoder": "millrace.dstreams.kafka_types.utf8_decoder",
    "millrace.dstreams.parameters.Parameters": "millrace.dstreams.kafka_params.Parameters",
    "millrace.dstreams.reading.Decoding": "millrace.dstreams.kafka_rdd.RddDecoder",
    "millrace.clients.kinesis.Kinesis": "millrace.clients.kinesis.client.Kinesis",
}
"""Names in earlier versions, and the names of today."""


def register_old_names() -> None:
    """Make the old names importable; called when `millrace.dstreams` is imported, which unpickling does first."""
    for old, new in OLD_NAMES.items():
        old_module, _, old_name = old.rpartition(".")
        new_module, _, new_name = new.rpartition(".")
        setattr(_module(old_module), old_name, getattr(importlib.import_module(new_module), new_name))


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return sys.modules.setdefault(name, ModuleType(name, "A module of an earlier version."))
