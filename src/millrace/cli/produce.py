"""`millrace kafka produce`: lines into a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, chosen_cluster, key_values
from millrace.cli.output import progress_line, say
from millrace.cli.signals import until_stopped
from millrace.errors import NotDelivered
from millrace.units import format_duration, parse_duration

if TYPE_CHECKING:
    import threading

    from millrace.clients.lines import LineFormat
    from millrace.clients.producer import Producer


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", show_default="standard input", help="A file of lines, one record each."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The same key for every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="TEXT", help="What stands between key and value in a line.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="KEY=VALUE", help="A header; may be given several times.")
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="A value to be sent as null (deletes a key).")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, show_default="by key", help="The partition to write to.")
    ] = None,
    acks: Annotated[str, typer.Option("--acks", help="Who must have a record: 0, 1 or all.")] = "all",
    idempotence: Annotated[
        bool | None,
        typer.Option("--idempotence/--no-idempotence", show_default="on with --acks all", help="No duplicates."),
    ] = None,
    compression: Annotated[str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")] = "lz4",
    transaction: Annotated[
        bool, typer.Option("--transaction", help="All lines in one transaction: all are seen, or none.")
    ] = False,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="The transaction's id; implies --transaction."),
    ] = None,
    abort: Annotated[bool, typer.Option("--abort", help="Abort the transaction at the end, to see what that does.")] = (
        False
    ),
    raw: Annotated[bool, typer.Option("--raw", help="Send bytes as they are; lines need not be UTF-8.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long a record may take.")] = "2m",
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Write lines from standard input or a file to a topic."""
    from millrace.clients import topics
    from millrace.clients.inputs import STANDARD_INPUT, chunks, opened
    from millrace.clients.lines import LineFormat, split_lines
    from millrace.clients.producer import Delivery, Producer, new_transaction

    cluster = chosen_cluster(kafka, kafka_config, data)
    format_ = LineFormat(key, key_separator, key_values(header, "--header"), null, partition, raw)
    id_ = transactional_id or (new_transaction() if transaction or abort else None)
    delivery = Delivery(acks, idempotence, compression, id_, parse_duration(timeout))
    topics.require(cluster.connect(), topic, partition)
    producer = Producer(cluster, topic, delivery)
    with until_stopped() as stop, opened(str(file or STANDARD_INPUT)) as descriptor:
        lines = split_lines(chunks(descriptor, stop), stop)
        started = time.monotonic()
        try:
            _send(producer, format_, lines, stop, abort)
        finally:
            _report(producer, time.monotonic() - started)
    if producer.failed:
        raise producer.failure()


def _send(
    producer: Producer, format_: LineFormat, lines: Iterator[list[bytes]], stop: threading.Event, abort: bool
) -> None:
    from millrace.clients.lines import records

    if producer.transactional:
        producer.begin()
    try:
        with progress_line() as progress:
            for batch in records(lines, format_):
                producer.send(batch)
                progress(f"{producer.delivered:,} delivered")
                if stop.is_set() or producer.failed:
                    break
    except BaseException:
        producer.abort()
        raise
    if producer.transactional:
        _end_transaction(producer, stop, abort)
    else:
        _finish(producer, stop)


def _end_transaction(producer: Producer, stop: threading.Event, abort: bool) -> None:
    if stop.is_set():
        producer.abort()
        raise NotDelivered(
            "the transaction was aborted: it was stopped before its last line",
            hint="end the lines with Ctrl-D to commit them",
        )
    if abort:
        producer.flush()
        producer.abort()
        say("the transaction was aborted: a reader of committed records sees none of it")
    else:
        producer.commit()


def _finish(producer: Producer, stop: threading.Event) -> None:
    """Wait for what is on its way; Ctrl-C gives it up, and it is counted as not delivered."""
    stop.clear()
    while producer.waiting() and not stop.is_set():
        producer.flush(0.2)
    if producer.waiting():
        producer.give_up()


def _report(producer: Producer, seconds: float) -> None:
    producer.flush()
    rate = producer.delivered / seconds if seconds else 0
    say(
        f"{producer.delivered:,} delivered, {producer.failed:,} failed, "
        f"in {format_duration(seconds)} ({rate:,.0f} records/s)"
    )
