"""`millrace kafka consume`: print the records of a topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from millrace.cli.app import OUTPUT_PANEL, RECORDS_PANEL, option
from millrace.cli.options import KafkaOptions, TopicName
from millrace.cli.output import closed_output_allowed, print_line
from millrace.cli.signals import until_stopped
from millrace.errors import InvalidOption, MillraceError
from millrace.units import format_count, parse_duration, parse_time

if TYPE_CHECKING:
    from datetime import datetime

    from millrace.clients.kafka.cluster import Cluster


def consume(
    topic: TopicName,
    *,
    from_beginning: Annotated[
        bool, option("--from-beginning", RECORDS_PANEL, "Start at the oldest record, not at new ones.")
    ] = False,
    partition: Annotated[int | None, option("--partition", RECORDS_PANEL, "Only this partition.", "N", min=0)] = None,
    offset: Annotated[
        int | None, option("--offset", RECORDS_PANEL, "Start at this offset; needs --partition.", "N", min=0)
    ] = None,
    from_time: Annotated[
        str | None, option("--from-time", RECORDS_PANEL, "Start at this time: 2026-01-31T12:00:00Z, '5m ago'.", "TIME")
    ] = None,
    group: Annotated[
        str | None,
        option("--group", RECORDS_PANEL, "Read as a member of this consumer group, and commit its offsets.", "NAME"),
    ] = None,
    most: Annotated[
        int | None, option("--max", RECORDS_PANEL, "Maximum number of records; then stop.", "N", min=1)
    ] = None,
    timeout: Annotated[
        str | None, option("--timeout", RECORDS_PANEL, "Stop when no record came for this long.", "DURATION")
    ] = None,
    committed: Annotated[
        bool,
        option("--read-committed/--read-uncommitted", RECORDS_PANEL, "Only records of committed transactions, or all."),
    ] = True,
    current: Annotated[
        bool, option("--current", RECORDS_PANEL, "Read the topic's current generation; see millrace replay --help.")
    ] = False,
    format_: Annotated[
        str,
        option(
            "--format",
            OUTPUT_PANEL,
            "text: values as they are; json: values as JSON; record: with key, headers and position.",
            "FORMAT",
        ),
    ] = "text",
    as_json: Annotated[bool, option("--json", OUTPUT_PANEL, "The same as --format record.")] = False,
    keys: Annotated[bool, option("--keys", OUTPUT_PANEL, "With --format text: print key, tab, value.")] = False,
    kafka: KafkaOptions,
) -> None:
    """Print the records of a topic until Ctrl-C, --max or --timeout."""
    from millrace.cli.commands.kafka.record_output import RECORD_FORMATS, for_terminal
    from millrace.clients.kafka.consumer import ReadRequest, read_records

    name = "record" if as_json else "keys" if keys and format_ == "text" else format_
    if name not in RECORD_FORMATS:
        raise InvalidOption(f"there is no format {format_!r}", hint="use text, json or record")
    to_line = for_terminal(name) if sys.stdout.isatty() else RECORD_FORMATS[name]
    cluster = kafka.cluster()
    topic = _current(cluster, topic) if current else topic
    printed = 0
    with until_stopped() as stop:
        request = ReadRequest(
            topic,
            _start(from_beginning, offset, from_time),
            partition,
            group,
            most,
            None if timeout is None else parse_duration(timeout),
            committed,
            stop,
            print_line,
        )
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


def _current(cluster: Cluster, name: str) -> str:
    from millrace.connectors.kafka.generation_alias import current_topic

    topic = current_topic(cluster, name)
    print_line(f"the current generation of {name} is the topic {topic}")
    return topic


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
