"""`millrace kafka topics`: create, list, describe, change and delete topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.app import OUTPUT_PANEL, App, HelpPanel
from millrace.cli.options import AsJson, KafkaOptions, Yes, confirm, pairs
from millrace.cli.output import print_line, print_result, progress_line, show_json, show_rows, show_table
from millrace.errors import InvalidOption
from millrace.settings import KAFKA, KAFKA_DATA
from millrace.units import format_bytes, parse_duration

if TYPE_CHECKING:
    from collections import Counter

    from millrace.clients.kafka.cluster import Cluster
    from millrace.clients.kafka.topics import Topic

app = App(help="Topics: create, list, describe, alter, delete.")
_TOPIC_PANEL = HelpPanel("Topic")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the topic.", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="The names of topics.", show_default=False)]
Partitions = Annotated[
    int | None, _TOPIC_PANEL.option("Number of partitions.", "N", min=1, show_default="the broker's")
]
Retention = Annotated[str | None, _TOPIC_PANEL.option("How long records are kept, as 1h, 7d or forever.", "DURATION")]
Configs = Annotated[list[str] | None, _TOPIC_PANEL.option("A topic setting; may be given several times.", "KEY=VALUE")]
Count = Annotated[bool, OUTPUT_PANEL.flag("Count the committed records as well, by reading all of them.")]


@app.command()
def create(
    name: Name,
    *,
    partitions: Partitions = None,
    replication: int | None = _TOPIC_PANEL.option(
        "Number of replicas of each partition.", "N", min=1, show_default="the broker's"
    ),
    retention: Retention = None,
    config: Configs = None,
    kafka: KafkaOptions,
) -> None:
    """Create a topic."""
    from millrace.clients.kafka import topics

    cluster = kafka.cluster()
    topics.create(cluster, name, partitions, replication, _configs(config, retention))
    topic = topics.describe(cluster, [name])[0]
    print_line(f"created {name}: {len(topic.partitions)} partition(s), replication {topic.replication}")


@app.command("list")
def list_(
    *,
    internal: bool = OUTPUT_PANEL.flag("Also list the internal topics of Kafka."),
    count: Count = False,
    as_json: AsJson = False,
    kafka: KafkaOptions,
) -> None:
    """List topics."""
    from millrace.clients.kafka import topics

    cluster = kafka.cluster()
    listed = topics.list_topics(cluster, internal=internal)
    counts = _record_counts(cluster, listed) if count else None
    rows = [
        (
            topic.name,
            len(topic.partitions),
            topic.replication,
            topic.offsets,
            *_records(topic, counts).values(),
            topic.under_replicated,
        )
        for topic in listed
    ]
    columns = {
        "name": "topic",
        "partitions": "partitions",
        "replication": "replication",
        "offsets": "offsets",
        **({"records": "records"} if count else {}),
        "under_replicated": "under-replicated",
    }
    show_rows(columns, rows, as_json=as_json)


@app.command()
def describe(names: Names, *, count: Count = False, as_json: AsJson = False, kafka: KafkaOptions) -> None:
    """Describe topics: leader, replicas, in-sync set, offsets and size of each partition; settings."""
    from millrace.clients.kafka import topics

    cluster = kafka.cluster()
    described = topics.describe(cluster, names)
    sizes = _sizes(cluster, names, kafka)
    counts = _record_counts(cluster, described) if count else None
    if as_json:
        show_json([_as_json(topic, sizes, counts) for topic in described])
        return
    for topic in described:
        rows = [
            (
                partition.id,
                partition.leader,
                partition.replicas,
                partition.in_sync,
                partition.first,
                partition.end,
                partition.offsets,
                *([] if counts is None else [counts[topic.name, partition.id]]),
                None if sizes is None else format_bytes(sizes.get((topic.name, partition.id), 0)),
            )
            for partition in topic.partitions
        ]
        records = ["records"] if count else []
        columns = ("partition", "leader", "replicas", "in sync", "first", "end", "offsets", *records, "size")
        show_table(columns, rows, title=topic.name)
        for key, value in topic.configs.items():
            print_result(f"  {key} = {value}")


@app.command()
def alter(
    name: Name,
    *,
    partitions: Partitions = None,
    retention: Retention = None,
    config: Configs = None,
    reset: Annotated[list[str] | None, _TOPIC_PANEL.option("Reset a setting to the broker's default.", "KEY")] = None,
    kafka: KafkaOptions,
) -> None:
    """Change a topic: more partitions, settings."""
    from millrace.clients.kafka import topics

    configs = _configs(config, retention)
    if not (partitions or configs or reset):
        raise InvalidOption("nothing to change was given", hint="add --partitions, --retention, --config or --reset")
    topics.alter(kafka.cluster(), name, partitions, configs, reset or ())
    print_line(f"changed {name}")


@app.command()
def delete(names: Names, yes: Yes = False, *, kafka: KafkaOptions) -> None:
    """Delete topics with all their records."""
    from millrace.clients.kafka import topics

    cluster = kafka.cluster()
    most = sum(topic.offsets for topic in topics.describe(cluster, names))
    if confirm(f"delete {', '.join(names)} with {f'up to {most:,}' if most else 'no'} records?", yes):
        topics.delete(cluster, names)
        print_line(f"deleted {', '.join(names)}")


def _configs(config: list[str] | None, retention: str | None) -> dict[str, str]:
    configs = dict(pairs(config, "--config"))
    if retention:
        forever = retention == "forever"
        configs["retention.ms"] = "-1" if forever else str(int(parse_duration(retention) * 1000))
    return configs


def _sizes(cluster: Cluster, names: list[str], kafka: KafkaOptions) -> dict[tuple[str, int], int] | None:
    from millrace.services.disk_usage import sizes_by_tool, sizes_on_disk

    is_ours = KAFKA.value(kafka.kafka) is None
    return sizes_on_disk(KAFKA_DATA.value(kafka.data), names) if is_ours else sizes_by_tool(cluster, names)


def _record_counts(cluster: Cluster, topics: list[Topic]) -> Counter[tuple[str, int]]:
    from millrace.clients.kafka.consumer import count_committed

    with progress_line() as update:
        return count_committed(
            cluster, [topic.name for topic in topics], lambda count: update(f"{count:,} records counted")
        )


def _records(topic: Topic, counts: Counter[tuple[str, int]] | None) -> dict[str, int]:
    """Return the number of records of a topic, if they were counted."""
    return {} if counts is None else {"records": sum(counts[topic.name, part.id] for part in topic.partitions)}


def _as_json(
    topic: Topic, sizes: dict[tuple[str, int], int] | None, counts: Counter[tuple[str, int]] | None
) -> dict[str, Any]:
    partitions = [
        asdict(partition)
        | {"offsets": partition.offsets}
        | ({} if counts is None else {"records": counts[topic.name, partition.id]})
        | {"bytes": None if sizes is None else sizes.get((topic.name, partition.id), 0)}
        for partition in topic.partitions
    ]
    return {
        "name": topic.name,
        "replication": topic.replication,
        "offsets": topic.offsets,
        **_records(topic, counts),
        "configs": dict(topic.configs),
        "partitions": partitions,
    }
