"""`millrace kafka produce`: write lines to a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from millrace.cli.app import HelpPanel
from millrace.cli.options import KafkaOptions, TopicName, pairs
from millrace.cli.output import delivered_line, print_line, progress_line
from millrace.cli.signals import until_stopped
from millrace.errors import MillraceError, NotDelivered
from millrace.units import parse_duration

if TYPE_CHECKING:
    from millrace.clients.kafka.producer import Producer
    from millrace.clients.kafka.record import Record

_INPUT_PANEL = HelpPanel("Input")
_DELIVERY_PANEL = HelpPanel("Delivery")


def produce(
    topic: TopicName,
    *,
    file: Annotated[
        Path | None,
        _INPUT_PANEL.option(
            "A file with one record on each line.", "FILE", names="--file -f", show_default="standard input"
        ),
    ] = None,
    key: str | None = _INPUT_PANEL.option("The key of every record.", "TEXT"),
    key_separator: str | None = _INPUT_PANEL.option("Separates key and value in a line.", "TEXT"),
    header: Annotated[
        list[str] | None, _INPUT_PANEL.option("A header; may be given several times.", "KEY=VALUE")
    ] = None,
    null: str | None = _INPUT_PANEL.option("Send this value as null (deletes a key).", "TEXT"),
    raw: bool = _INPUT_PANEL.flag("Send bytes as they are; lines need not be UTF-8."),
    partition: int | None = _DELIVERY_PANEL.option("The partition to write to.", "N", min=0, show_default="by key"),
    acks: str = _DELIVERY_PANEL.option("How many replicas must acknowledge a record.", "0|1|all", default="all"),
    idempotence: bool | None = _DELIVERY_PANEL.option(
        "Write no duplicates.", names="--idempotence/--no-idempotence", show_default="on with --acks all"
    ),
    compression: str | None = _DELIVERY_PANEL.option("none, gzip, snappy, lz4 or zstd.", "CODEC", show_default="lz4"),
    transaction: bool = _DELIVERY_PANEL.flag("Send all lines in one transaction."),
    transactional_id: str | None = _DELIVERY_PANEL.option("The transactional id; implies --transaction.", "ID"),
    abort: bool = _DELIVERY_PANEL.flag("Abort the transaction at the end, to see the effect."),
    timeout: str = _DELIVERY_PANEL.option("Delivery timeout of a record.", "DURATION", default="2m"),
    kafka: KafkaOptions,
) -> None:
    """Write lines from standard input or a file to a topic."""
    from millrace.clients import line_input
    from millrace.clients.kafka import topics
    from millrace.clients.kafka.producer import Delivery, Producer, new_transactional_id

    cluster = kafka.cluster()
    format_ = line_input.LineFormat(key, key_separator, pairs(header, "--header"), null, partition, raw)
    id_ = transactional_id or (new_transactional_id() if transaction or abort else None)
    delivery = Delivery(acks, idempotence, compression, id_, parse_duration(timeout), only_failures=True)
    topics.require(cluster.connect(), topic, partition)
    with until_stopped() as stop, line_input.open_input(str(file or line_input.STANDARD_INPUT)) as descriptor:
        producer = Producer(cluster, topic, delivery, stop)
        lines = line_input.split_lines(line_input.input_chunks(descriptor, stop), stop, crlf=not raw)
        if descriptor == 0 and sys.stdin.isatty():
            print_line("type lines; Ctrl-D ends them")
        started = time.monotonic()
        try:
            _send(producer, line_input.line_records(lines, format_), abort)
        finally:
            print_line(delivered_line(producer.delivered, producer.failed, time.monotonic() - started))
    if producer.failed:
        raise producer.failure()


def _send(producer: Producer, batches: Iterator[list[Record]], abort: bool) -> None:
    """Send everything; commit the transaction, if there is one, or abort it."""
    if producer.transactional:
        producer.begin()
    try:
        with progress_line(quiet=sys.stdin.isatty()) as progress:
            for batch in batches:
                producer.send(batch)
                progress(f"{producer.delivered:,} delivered")
        if producer.transactional:
            _end_transaction(producer, abort)
    except BaseException:
        with suppress(MillraceError):  # the first failure is the one to report
            producer.abort()
        raise
    finally:
        producer.close(print_line)


def _end_transaction(producer: Producer, abort: bool) -> None:
    if producer.reason is None and producer.stopped():
        raise NotDelivered(
            "the transaction was aborted: it was interrupted before its last line",
            hint="end the lines with Ctrl-D to commit them",
        )
    if abort:
        producer.flush()
        producer.abort()
        print_line("the transaction was aborted: a reader of committed records sees none of it")
    else:
        producer.commit()
