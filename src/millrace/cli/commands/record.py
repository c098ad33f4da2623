"""`millrace record`: save a range of a topic as a file for tests."""

from __future__ import annotations

from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from millrace.cli.app import OUTPUT_PANEL, RECORDS_PANEL, HelpPanel
from millrace.cli.options import KafkaOptions, TopicName
from millrace.cli.output import print_line
from millrace.cli.signals import interruptible
from millrace.errors import FileUnusable, InvalidOption
from millrace.units import format_count, parse_start

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES_PRINTED = 5
_MASK_PANEL = HelpPanel("Masking")


KeepUnmasked = StrEnum("KeepUnmasked", ["key", "headers"])
"""Parts of a record that can stay as they are when columns are masked."""


def record(
    topic: TopicName,
    *,
    from_: str = RECORDS_PANEL.option(
        "Where to start: earliest, an offset, a time, or '5m ago'.", "POSITION", default="earliest"
    ),
    to: str = RECORDS_PANEL.option(
        "Where to end (exclusive): latest, an offset, a time.", "POSITION", default="latest"
    ),
    most: int = RECORDS_PANEL.option("Maximum number of records.", "N", names="--max", min=1, default=10_000),
    mask: Annotated[
        list[str] | None,
        _MASK_PANEL.option(
            "Replace the values of this column (user.name is a nested one), and every key and header.", "COLUMN"
        ),
    ] = None,
    mask_names: Annotated[
        list[str] | None,
        _MASK_PANEL.option(
            "As --mask, and also the names of fields within the column, which are data in a map.", "COLUMN"
        ),
    ] = None,
    keep: Annotated[
        list[KeepUnmasked] | None, _MASK_PANEL.option("Do not mask the keys, or the headers, of the records.")
    ] = None,
    phrase: str | None = _MASK_PANEL.option(
        "With the same phrase, the same values get the same masks in every recording.", "TEXT"
    ),
    out: Annotated[Path | None, OUTPUT_PANEL.option("The file.", "FILE", show_default="TOPIC.records.jsonl")] = None,
    kafka: KafkaOptions,
) -> None:
    """Save a range of a topic, byte for byte, for tests: given: {SOURCE: {records: FILE}}."""
    from millrace.atomic_files import write_whole
    from millrace.clients.kafka.consumer import committed_between
    from millrace.clients.kafka.record import message_fields
    from millrace.testing.recording import ColumnMasker, UnmaskableColumn, recording_line

    path = out or Path(f"{topic}.records.jsonl")
    if path.exists():
        raise FileUnusable(f"{path} already exists", hint="remove it, or choose another with --out")
    wanted = [*(mask or ()), *(mask_names or ())]
    for flag, given in (("--phrase", phrase is not None), ("--keep", bool(keep))):
        if given and not wanted:
            raise InvalidOption(f"{flag} is for columns that are masked", hint="add --mask COLUMN")
    if both := [part for part in keep or () if part in (mask_names or () if part == KeepUnmasked.headers else wanted)]:
        hint = f"leave --keep {both[0]} out, or what masks {both[0]}"
        raise InvalidOption(f"{both[0]} cannot be both masked and kept", hint=hint)
    positions = parse_start(from_), parse_start(to)
    cluster = kafka.cluster()
    masker = ColumnMasker(mask or (), phrase, keep or (), mask_names or ())
    lines: list[bytes] = []
    left_out = 0
    with interruptible():
        messages = chain.from_iterable(committed_between(cluster, topic, *positions))
        for message in islice(messages, most):
            try:
                lines.append(recording_line(masker.record(message_fields(message))))
            except UnmaskableColumn:
                left_out += 1
        more = next(messages, None) is not None
    if missing := [column for column in wanted if column not in masker.met and lines]:
        raise InvalidOption(f"no record has a column {missing[0]!r} to mask", hint="check its name; nothing was saved")
    write_whole(path, b"".join(lines))
    print_line(f"{format_count(len(lines), 'record')} in {path}")
    if more:
        print_line(f"there are more: --max {most} was reached")
    _print_names(masker.names)
    if left_out:
        print_line(f"{left_out:,} were left out: they are no JSON objects, so their columns cannot be masked")


def _print_names(columns: Mapping[str, set[str]]) -> None:
    """Print the names within masked columns, which are not masked: of fields, or perhaps of people."""
    for column, names in columns.items():
        some, more = ", ".join(sorted(names)[:_NAMES_PRINTED]), len(names) - _NAMES_PRINTED
        some += f" and {more:,} more" if more > 0 else ""
        print_line(f"names within {column} are not masked: {some}; if they are data, --mask-names {column} masks them")
