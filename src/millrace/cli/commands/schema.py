"""`millrace schema`: propose a schema for the records of a topic."""

from __future__ import annotations

from millrace.cli.app import RECORDS_PANEL
from millrace.cli.commands.dead.selection import safe_text
from millrace.cli.options import KafkaOptions, TopicName
from millrace.cli.output import print_line, print_result
from millrace.errors import InputError
from millrace.units import format_count

_MAX_REASONS = 5
_READ_TIMEOUT_S = 2.0


def schema(
    topic: TopicName,
    *,
    sample: int = RECORDS_PANEL.option("Maximum number of records to read.", "N", min=1, default=1000),
    kafka: KafkaOptions,
) -> None:
    """Propose a schema from a sample of a topic's JSON records."""
    from millrace.clients.kafka.consumer import ReadRequest, read_records
    from millrace.formats.schema_inference import propose_schema

    request = ReadRequest(topic, start="earliest", most=sample, timeout=_READ_TIMEOUT_S)
    messages = (message for batch in read_records(kafka.cluster(), request) for message in batch)
    values = [value for message in messages if (value := message.value()) is not None]
    if not values:
        raise InputError(f"topic {topic!r} is empty", hint="write some records first: millrace feed posts")
    proposal = propose_schema(values)
    print_result(proposal.schema.ddl())
    print_line(f"from {format_count(proposal.records, 'record')}; add NOT NULL to columns that every record must have")
    if partly := {name: count for name, count in proposal.filled.items() if count < proposal.records}:
        counts = ", ".join(f"{safe_text(name)} {count:,}" for name, count in partly.items())
        print_line(f"how many of them fill a column, where not all do: {counts}")
    if proposal.foreign:
        print_line(f"{format_count(proposal.foreign, 'record')} with none of the usual fields: theirs are left out")
    if proposal.unfit:
        print_line(f"{proposal.unfit.total():,} of them do not fit and would be dead letters:")
    for reason, count in proposal.unfit.most_common(_MAX_REASONS):
        print_line(f"  {count:,} × {safe_text(reason)}")
    if len(proposal.unfit) > _MAX_REASONS:
        print_line(f"  and {len(proposal.unfit) - _MAX_REASONS:,} other reasons")
    for (key, column), count in proposal.other_case.most_common(_MAX_REASONS):
        difference = (
            f"{format_count(count, 'record')} of them: key {safe_text(key)!r} is not column {safe_text(column)!r}"
        )
        print_line(f"{difference}: names are case-sensitive, and the column is null there")
