"""`millrace kafka produce`: write lines to a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from millrace.cli.app import option
from millrace.cli.options import KafkaOptions, TopicName, pairs
from millrace.cli.output import delivered_line, print_line, progress_line
from millrace.cli.signals import until_stopped
from millrace.errors import MillraceError, NotDelivered
from millrace.units import parse_duration

if TYPE_CHECKING:
    from millrace.clients.kafka.producer import Producer
    from millrace.clients.kafka.record import Record

_INPUT_PANEL = "Input"
_DELIVERY_PANEL = "Delivery"


def produce(
    topic: TopicName,
    *,
    file: Annotated[
        Path | None,
        option(
            "--file -f", _INPUT_PANEL, "A file with one record on each line.", "FILE", show_default="standard input"
        ),
    ] = None,
    key: Annotated[str | None, option("--key", _INPUT_PANEL, "The key of every record.", "TEXT")] = None,
    key_separator: Annotated[
        str | None, option("--key-separator", _INPUT_PANEL, "Separates key and value in a line.", "TEXT")
    ] = None,
    header: Annotated[
        list[str] | None, option("--header", _INPUT_PANEL, "A header; may be given several times.", "KEY=VALUE")
    ] = None,
    null: Annotated[
        str | None, option("--null", _INPUT_PANEL, "Send this value as null (deletes a key).", "TEXT")
    ] = None,
    raw: Annotated[bool, option("--raw", _INPUT_PANEL, "Send bytes as they are; lines need not be UTF-8.")] = False,
    partition: Annotated[
        int | None,
        option("--partition", _DELIVERY_PANEL, "The partition to write to.", "N", min=0, show_default="by key"),
    ] = None,
    acks: Annotated[
        str, option("--acks", _DELIVERY_PANEL, "How many replicas must acknowledge a record.", "0|1|all")
    ] = "all",
    idempotence: Annotated[
        bool | None,
        option(
            "--idempotence/--no-idempotence", _DELIVERY_PANEL, "Write no duplicates.", show_default="on with --acks all"
        ),
    ] = None,
    compression: Annotated[
        str | None,
        option("--compression", _DELIVERY_PANEL, "none, gzip, snappy, lz4 or zstd.", "CODEC", show_default="lz4"),
    ] = None,
    transaction: Annotated[
        bool, option("--transaction", _DELIVERY_PANEL, "Send all lines in one transaction.")
    ] = False,
    transactional_id: Annotated[
        str | None, option("--transactional-id", _DELIVERY_PANEL, "The transactional id; implies --transaction.", "ID")
    ] = None,
    abort: Annotated[
        bool, option("--abort", _DELIVERY_PANEL, "Abort the transaction at the end, to see the effect.")
    ] = False,
    timeout: Annotated[str, option("--timeout", _DELIVERY_PANEL, "Delivery timeout of a record.", "DURATION")] = "2m",
    kafka: KafkaOptions,
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

    cluster = kafka.cluster()
    format_ = LineFormat(key, key_separator, pairs(header, "--header"), null, partition, raw)
    id_ = transactional_id or (new_transactional_id() if transaction or abort else None)
    delivery = Delivery(acks, idempotence, compression, id_, parse_duration(timeout), only_failures=True)
    topics.require(cluster.connect(), topic, partition)
    with until_stopped() as stop, open_input(str(file or STANDARD_INPUT)) as descriptor:
        producer = Producer(cluster, topic, delivery, stop)
        lines = split_lines(input_chunks(descriptor, stop), stop, crlf=not raw)
        if descriptor == 0 and sys.stdin.isatty():
            print_line("type lines; Ctrl-D ends them")
        started = time.monotonic()
        try:
            _send(producer, line_records(lines, format_), abort)
        finally:
            print_line(delivered_line(producer.delivered, producer.failed, time.monotonic() - started))
    if producer.failed:
        raise producer.failure()


def _send(producer: Producer, batches: Iterator[list[Record]], abort: bool) -> None:
    """Send everything; commit the transaction, if there is one, or abort it."""
    if producer.transactional:
        producer.begin()
    try:
        _send_all(producer, batches)
        if producer.transactional:
            _end_transaction(producer, abort)
    except BaseException:
        with suppress(MillraceError):  # the first failure is the one to report
            producer.abort()
        raise
    finally:
        producer.close(print_line)


def _send_all(producer: Producer, batches: Iterator[list[Record]]) -> None:
    with progress_line(quiet=sys.stdin.isatty()) as progress:
        for batch in batches:
            producer.send(batch)
            progress(f"{producer.delivered:,} delivered")


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
