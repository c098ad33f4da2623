"""`millrace kafka consume`: records of a topic, printed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, chosen_cluster
from millrace.cli.output import reader_may_leave, say, without_controls
from millrace.cli.signals import until_stopped
from millrace.errors import InvalidOption, MillraceError
from millrace.units import format_count, parse_duration, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from confluent_kafka import Message

    from millrace.clients.kafka.cluster import Cluster


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="From the oldest record, not only what comes from now on.")
    ] = False,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="From this offset; needs --partition.")] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", metavar="TIME", help="From this time on: 2026-01-31T12:00:00Z, '5m ago'."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Read as a member of this group and commit its offsets.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many records.")] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Stop when no record came for so long.")
    ] = None,
    committed: Annotated[
        bool,
        typer.Option("--read-committed/--read-uncommitted", help="Only records of committed transactions, or all."),
    ] = True,
    format_: Annotated[
        str,
        typer.Option(
            "--format", help="text: values as they are; json: values as JSON; record: with key, headers and place."
        ),
    ] = "text",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a record, with key, headers, timestamp and place.")
    ] = False,
    keys: Annotated[bool, typer.Option("--keys", help="With text: key, tab, value.")] = False,
    current: Annotated[
        bool, typer.Option("--current", help="The generation of the topic that counts; see millrace replay.")
    ] = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Print the records of a topic until Ctrl-C, --max or --timeout."""
    from millrace.cli.commands.kafka.record_output import SHOWN
    from millrace.clients.kafka.consumer import ReadRequest, read_records

    shown = "record" if as_json else "keys" if keys and format_ == "text" else format_
    if shown not in SHOWN:
        raise InvalidOption(f"there is no format {format_!r}", hint="use text, json or record")
    show = _for_terminal(SHOWN[shown]) if sys.stdout.isatty() else SHOWN[shown]
    cluster = chosen_cluster(kafka, kafka_config, data)
    topic = _current(cluster, topic) if current else topic
    printed = 0
    with until_stopped() as stop:
        reading = ReadRequest(
            topic,
            _start(from_beginning, offset, from_time),
            partition,
            group,
            most,
            None if timeout is None else parse_duration(timeout),
            committed,
            stop,
            say,
        )
        if sys.stdout.isatty() and not group and reading.start == "latest":
            say("waiting for new records (--from-beginning shows older ones); Ctrl-C ends it")
        try:
            with reader_may_leave():
                for batch in read_records(cluster, reading):
                    sys.stdout.buffer.write(b"".join(show(message) + b"\n" for message in batch))
                    sys.stdout.buffer.flush()
                    printed += len(batch)
        except MillraceError:
            if printed:
                say(format_count(printed, "record"))
            raise
        say(format_count(printed, "record"))


def _current(cluster: Cluster, name: str) -> str:
    from millrace.connectors.kafka.generation_alias import current_topic

    found = current_topic(cluster, name)
    say(f"the current generation of {name} is the topic {found}")
    return found


def _start(from_beginning: bool, offset: int | None, from_time: str | None) -> str | int | datetime:
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise InvalidOption(
            "there is more than one place to start", hint="use one of --from-beginning, --offset, --from-time"
        )
    if offset is not None:
        return offset
    if from_time is not None:
        return parse_time(from_time)
    return "earliest" if from_beginning else "latest"


def _for_terminal(show: Callable[[Message], bytes]) -> Callable[[Message], bytes]:
    """The same for people: a program that reads the output gets every byte, a terminal none that steers it."""
    return lambda message: without_controls(show(message).decode("utf-8", "replace")).encode()
