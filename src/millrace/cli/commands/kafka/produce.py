"""`millrace kafka produce`: lines into a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, chosen_cluster, pairs
from millrace.cli.output import delivered_line, progress_line, say
from millrace.cli.signals import until_stopped
from millrace.errors import MillraceError, NotDelivered
from millrace.units import parse_duration

if TYPE_CHECKING:
    from millrace.clients.kafka.producer import Producer
    from millrace.clients.kafka.record import Record


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
    compression: Annotated[
        str | None, typer.Option("--compression", show_default="lz4", help="none, gzip, snappy, lz4 or zstd.")
    ] = None,
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
    from millrace.clients.kafka import topics
    from millrace.clients.kafka.producer import Delivery, Producer, new_transactional_id
    from millrace.clients.line_input import (
        STANDARD_INPUT,
        LineFormat,
        input_chunks,
        line_records,
        open_input,
        split_lines,
    )

    cluster = chosen_cluster(kafka, kafka_config, data)
    format_ = LineFormat(key, key_separator, pairs(header, "--header"), null, partition, raw)
    id_ = transactional_id or (new_transactional_id() if transaction or abort else None)
    delivery = Delivery(acks, idempotence, compression, id_, parse_duration(timeout), only_failures=True)
    topics.require(cluster.connect(), topic, partition)
    with until_stopped() as stop, open_input(str(file or STANDARD_INPUT)) as descriptor:
        producer = Producer(cluster, topic, delivery, stop)
        lines = split_lines(input_chunks(descriptor, stop), stop, crlf=not raw)
        if descriptor == 0 and sys.stdin.isatty():
            say("type lines; Ctrl-D ends them")
        started = time.monotonic()
        try:
            _send(producer, line_records(lines, format_), abort)
        finally:
            say(delivered_line(producer.delivered, producer.failed, time.monotonic() - started))
    if producer.failed:
        raise producer.failure()


def _send(producer: Producer, batches: Iterator[list[Record]], abort: bool) -> None:
    """Send everything, in a transaction if it is one; what stopped it decides how that ends."""
    if producer.transactional:
        producer.begin()
    try:
        _send_all(producer, batches)
        if producer.transactional:
            _end_transaction(producer, abort)
    except BaseException:
        with suppress(MillraceError):  # the first failure is the one to tell
            producer.abort()
        raise
    finally:
        producer.close(say)


def _send_all(producer: Producer, batches: Iterator[list[Record]]) -> None:
    with progress_line(quiet=sys.stdin.isatty()) as progress:
        for batch in batches:
            producer.send(batch)
            progress(f"{producer.delivered:,} delivered")


def _end_transaction(producer: Producer, abort: bool) -> None:
    if producer.reason is None and producer.stopped():
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
