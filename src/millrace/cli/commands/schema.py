"""`millrace schema`: the schema that fits a topic's records, for a pipeline's file."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.commands.dead.selection import safe_text
from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, chosen_cluster
from millrace.cli.output import out, say
from millrace.errors import InputError
from millrace.units import format_count

_REASONS = 5


def schema(
    topic: Annotated[str, typer.Argument(help="The topic whose records are JSON.", metavar="TOPIC")],
    sample: Annotated[int, typer.Option("--sample", min=1, help="Look at so many records.")] = 1000,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Propose a schema from a sample of a topic's JSON records."""
    from millrace.clients.kafka.consumer import ReadRequest, read_records
    from millrace.formats.schema_inference import propose_schema

    cluster = chosen_cluster(kafka, kafka_config, data)
    reading = ReadRequest(topic, start="earliest", most=sample, timeout=2.0)
    values = [
        value for batch in read_records(cluster, reading) for message in batch if (value := message.value()) is not None
    ]
    if not values:
        raise InputError(f"topic {topic!r} is empty", hint="write some records first: millrace feed posts")
    found = propose_schema(values)
    out().print(found.schema.ddl(), markup=False, soft_wrap=True, highlight=False)
    say(f"from {format_count(found.records, 'record')}; add NOT NULL to columns that every record must have")
    if found.unfit:
        say(f"{found.unfit.total():,} of them do not fit and would be dead letters:")
    for reason, count in found.unfit.most_common(_REASONS):
        say(f"  {count:,} × {safe_text(reason)}")
    if len(found.unfit) > _REASONS:
        say(f"  and {len(found.unfit) - _REASONS:,} other reasons")
    for (key, column), count in found.other_case.most_common(_REASONS):
        said = f"{format_count(count, 'record')} of them: key {safe_text(key)!r} is not column {safe_text(column)!r}"
        say(f"{said}: names are matched with their case, and the column is null there")
