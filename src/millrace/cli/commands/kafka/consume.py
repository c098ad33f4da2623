"""`millrace kafka consume`: print the records of a topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from millrace.cli.app import OUTPUT_PANEL, RECORDS_PANEL
from millrace.cli.options import KafkaOptions, TopicName
from millrace.cli.output import closed_output_allowed, print_line
from millrace.cli.signals import until_stopped
from millrace.errors import InvalidOption, MillraceError
from millrace.units import format_count, parse_duration, parse_time

if TYPE_CHECKING:
    from datetime import datetime


def consume(
    topic: TopicName,
    *,
    from_beginning: bool = RECORDS_PANEL.flag("Start at the oldest record, not at new ones."),
    partition: int | None = RECORDS_PANEL.option("Only this partition.", "N", min=0),
    offset: int | None = RECORDS_PANEL.option("Start at this offset; needs --partition.", "N", min=0),
    from_time: str | None = RECORDS_PANEL.option("Start at this time: 2026-01-31T12:00:00Z, '5m ago'.", "TIME"),
    group: str | None = RECORDS_PANEL.option(
        "Read as a member of this consumer group, and commit its offsets.", "NAME"
    ),
    most: int | None = RECORDS_PANEL.option("Maximum number of records; then stop.", "N", names="--max", min=1),
    timeout: str | None = RECORDS_PANEL.option("Stop when no record came for this long.", "DURATION"),
    committed: bool = RECORDS_PANEL.flag(
        "Only records of committed transactions, or all.", names="--read-committed/--read-uncommitted", default=True
    ),
    current: bool = RECORDS_PANEL.flag("Read the topic's current generation; see millrace replay --help."),
    format_: str = OUTPUT_PANEL.option(
        "text: values as they are; json: values as JSON; record: with key, headers and position.",
        "FORMAT",
        default="text",
    ),
    as_json: bool = OUTPUT_PANEL.flag("The same as --format record.", names="--json"),
    keys: bool = OUTPUT_PANEL.flag("With --format text: print key, tab, value."),
    kafka: KafkaOptions,
) -> None:
    """Print the records of a topic until Ctrl-C, --max or --timeout."""
    from millrace.cli.commands.kafka.record_output import RECORD_FORMATS, for_terminal
    from millrace.clients.kafka.consumer import ReadRequest, read_records
    from millrace.connectors.kafka.generation_alias import current_topic

    name = "record" if as_json else "keys" if keys and format_ == "text" else format_
    if name not in RECORD_FORMATS:
        raise InvalidOption(f"there is no format {format_!r}", hint="use text, json or record")
    to_line = for_terminal(name) if sys.stdout.isatty() else RECORD_FORMATS[name]
    cluster = kafka.cluster()
    if current:
        alias, topic = topic, current_topic(cluster, topic)
        print_line(f"the current generation of {alias} is the topic {topic}")
    printed = 0
    with until_stopped() as stop:
        start = _start(from_beginning, offset, from_time)
        timeout_s = None if timeout is None else parse_duration(timeout)
        request = ReadRequest(topic, start, partition, group, most, timeout_s, committed, stop, print_line)
        if sys.stdout.isatty() and not group and request.start == "latest":
            print_line("waiting for new records (--from-beginning shows older ones); Ctrl-C stops it")
        try:
            with closed_output_allowed():
                for batch in read_records(cluster, request):
                    sys.stdout.buffer.write(b"".join(to_line(message) + b"\n" for message in batch))
                    sys.stdout.buffer.flush()
                    printed += len(batch)
        except MillraceError:
            if printed:
                print_line(format_count(printed, "record"))
            raise
        print_line(format_count(printed, "record"))


def _start(from_beginning: bool, offset: int | None, from_time: str | None) -> str | int | datetime:
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise InvalidOption(
            "there is more than one position to start at", hint="use one of --from-beginning, --offset, --from-time"
        )
    if offset is not None:
        return offset
    if from_time is not None:
        return parse_time(from_time)
    return "earliest" if from_beginning else "latest"
