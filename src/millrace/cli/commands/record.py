"""`millrace record`: a slice of a real topic becomes a file that tests are given."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, chosen_cluster
from millrace.cli.output import say
from millrace.cli.signals import interruptible
from millrace.errors import FileUnusable, InvalidOption
from millrace.units import format_count, parse_start

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

_SHOWN = 5
"""Names that are told of an object."""


class KeepUnmasked(StrEnum):
    """What of a record can be left as it is while columns are masked."""

    key = "key"
    headers = "headers"


def record(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    from_: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="Where to begin: earliest, an offset, a time, or '5m ago'.")
    ] = "earliest",
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Where to end, before it: latest, an offset, or a time.")
    ] = "latest",
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="COLUMN",
            help="Replace this column (user.name is within another), and with it every key and header.",
        ),
    ] = None,
    mask_names: Annotated[
        list[str] | None,
        typer.Option(
            "--mask-names",
            metavar="COLUMN",
            help="As --mask, and the names within the column too: of a map, where they are data.",
        ),
    ] = None,
    keep: Annotated[
        list[KeepUnmasked] | None,
        typer.Option("--keep", help="What --mask leaves as it is: the records' keys, or their headers."),
    ] = None,
    phrase: Annotated[
        str | None,
        typer.Option("--phrase", metavar="TEXT", help="Recordings with the same phrase mask the same way."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", show_default="TOPIC.records.jsonl", help="The file.")
    ] = None,
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many records.")] = 10_000,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Save a slice of a topic, byte for byte, for tests: given: {SOURCE: {records: FILE}}."""
    from millrace.atomic_files import write_whole
    from millrace.clients.kafka.consumer import committed_between
    from millrace.clients.kafka.record import message_fields
    from millrace.testing.recording import ColumnMasker, UnmaskableColumn, recording_line

    path = out or Path(f"{topic}.records.jsonl")
    if path.exists():
        raise FileUnusable(f"{path} is there already", hint="remove it, or choose another with --out")
    wanted = [*(mask or ()), *(mask_names or ())]
    for option, given in (("--phrase", phrase is not None), ("--keep", bool(keep))):
        if given and not wanted:
            raise InvalidOption(f"{option} is for columns that are masked", hint="add --mask COLUMN")
    if both := [one for one in keep or () if one in (mask_names or () if one == KeepUnmasked.headers else wanted)]:
        hint = f"leave --keep {both[0]} out, or what masks {both[0]}"
        raise InvalidOption(f"{both[0]} cannot be both masked and kept", hint=hint)
    places = parse_start(from_), parse_start(to)
    cluster = chosen_cluster(kafka, kafka_config, data)
    disguise = ColumnMasker(mask or (), phrase, keep or (), mask_names or ())
    lines: list[bytes] = []
    left_out = 0
    with interruptible():
        messages = _each(committed_between(cluster, topic, *places))
        for message in islice(messages, most):
            try:
                lines.append(recording_line(disguise.record(message_fields(message))))
            except UnmaskableColumn:
                left_out += 1
        more = next(messages, None) is not None
    if missing := [column for column in wanted if column not in disguise.met and lines]:
        raise InvalidOption(f"no record has a column {missing[0]!r} to mask", hint="check its name; nothing was saved")
    write_whole(path, b"".join(lines))
    say(f"{format_count(len(lines), 'record')} in {path}")
    if more:
        say(f"there are more: --max {most} was reached")
    _tell_names(disguise.names)
    if left_out:
        say(f"{left_out:,} were left out: they are no JSON objects, so nobody knows what to mask in them")


def _tell_names(names: Mapping[str, set[str]]) -> None:
    """What was left readable around masked values: the names of fields, or, who knows, of people."""
    for column, found in names.items():
        some = ", ".join(sorted(found)[:_SHOWN]) + (f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else "")
        say(f"names within {column} stay as they are: {some}; if they are data, --mask-names {column} replaces them")


def _each(batches: Iterator[list[Message]]) -> Iterator[Message]:
    for batch in batches:
        yield from batch
