"""Everything that an author of a source, a sink, a format, a feed or a panel imports.

    from millrace.extend import RunContext, Sink, option

- Sources and sinks of pipelines: `Source`, `MessageSource`, `DecodedSource`, `Sink`, `RunContext`, `OptionMistake`.
- Dead letters of a `MessageSource`: `DeadLetterTarget`, `FolderDeadLetterTarget`, `KafkaDeadLetterTarget`.
- Formats: `Format`, `Decoder`, `Encoder`, `DecodedRecords`, `RejectedRecord`.
- Feeds, and sinks of feeds: `Feed`, `Batch`, `Run`, `Record`, `Done`, `RecordSink`, `SinkTarget`, `DeliveryReport`.
- Panels: `PanelKind`, `PanelOption`.
- What they share: `option`, parsers of quantities, schemas, the errors to raise, and `to_transport` for workers.

The docstring of each class is its contract: which methods are called, where (driver or worker), how often, and what
must be safe on retry. `docs/extending.md` shows one of each, from an empty file to a passing test.

A name is imported from its module when it is first used: importing this module loads neither Spark nor Kafka's client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.clients.kafka.record import Done, Record
    from millrace.connectors.base.api import MessageSource, RunContext, Sink, Source, whole_batch
    from millrace.connectors.base.message_source import DecodedSource
    from millrace.connectors.base.record_sink import DeliveryReport, RecordSink, SinkTarget
    from millrace.dead_letters.kafka_writer import KafkaDeadLetterTarget
    from millrace.dead_letters.writer import DeadLetterTarget, FolderDeadLetterTarget
    from millrace.errors import (
        FeedFailed,
        FileUnusable,
        InputError,
        InvalidOption,
        InvalidSchema,
        MillraceError,
        MissingExtra,
        RunError,
        SinkFailed,
    )
    from millrace.errors.transport import to_transport
    from millrace.feeds.base.api import Batch, Cursor, Feed, Run
    from millrace.formats.arrow_types import arrow_schema
    from millrace.formats.base import DecodedRecords, Decoder, Encoder, Format, RejectedRecord
    from millrace.pipeline.connector_facts import OptionMistake
    from millrace.pipeline.panels import PanelKind, PanelOption
    from millrace.pipeline.schema import Schema, parse_schema
    from millrace.plugins import option
    from millrace.units import parse_duration, parse_rate, parse_share, parse_time

__all__ = [
    "Batch",
    "Cursor",
    "DeadLetterTarget",
    "DecodedRecords",
    "DecodedSource",
    "Decoder",
    "DeliveryReport",
    "Done",
    "Encoder",
    "Feed",
    "FeedFailed",
    "FileUnusable",
    "FolderDeadLetterTarget",
    "Format",
    "InputError",
    "InvalidOption",
    "InvalidSchema",
    "KafkaDeadLetterTarget",
    "MessageSource",
    "MillraceError",
    "MissingExtra",
    "OptionMistake",
    "PanelKind",
    "PanelOption",
    "Record",
    "RecordSink",
    "RejectedRecord",
    "Run",
    "RunContext",
    "RunError",
    "Schema",
    "Sink",
    "SinkFailed",
    "SinkTarget",
    "Source",
    "arrow_schema",
    "option",
    "parse_duration",
    "parse_rate",
    "parse_schema",
    "parse_share",
    "parse_time",
    "to_transport",
    "whole_batch",
]

_MODULES = {
    "millrace.clients.kafka.record": ("Done", "Record"),
    "millrace.connectors.base.api": ("MessageSource", "RunContext", "Sink", "Source", "whole_batch"),
    "millrace.connectors.base.message_source": ("DecodedSource",),
    "millrace.connectors.base.record_sink": ("DeliveryReport", "RecordSink", "SinkTarget"),
    "millrace.dead_letters.kafka_writer": ("KafkaDeadLetterTarget",),
    "millrace.dead_letters.writer": ("DeadLetterTarget", "FolderDeadLetterTarget"),
    "millrace.errors": (
        "FeedFailed",
        "FileUnusable",
        "InputError",
        "InvalidOption",
        "InvalidSchema",
        "MillraceError",
        "MissingExtra",
        "RunError",
        "SinkFailed",
    ),
    "millrace.errors.transport": ("to_transport",),
    "millrace.feeds.base.api": ("Batch", "Cursor", "Feed", "Run"),
    "millrace.formats.arrow_types": ("arrow_schema",),
    "millrace.formats.base": ("RejectedRecord", "DecodedRecords", "Decoder", "Encoder", "Format"),
    "millrace.pipeline.connector_facts": ("OptionMistake",),
    "millrace.pipeline.panels": ("PanelKind", "PanelOption"),
    "millrace.pipeline.schema": ("Schema", "parse_schema"),
    "millrace.plugins": ("option",),
    "millrace.units": ("parse_duration", "parse_rate", "parse_share", "parse_time"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'millrace.extend' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
