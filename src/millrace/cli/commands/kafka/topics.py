"""`millrace kafka topics`: made, listed, described, changed, deleted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import AsJson, DataFolder, KafkaAddress, KafkaConfig, Yes, chosen_cluster, confirm, pairs
from millrace.cli.output import out, progress_line, say, show_json, show_rows, show_table
from millrace.errors import InvalidOption
from millrace.settings import KAFKA, KAFKA_DATA
from millrace.units import format_bytes, parse_duration

if TYPE_CHECKING:
    from collections import Counter

    from millrace.clients.kafka.cluster import Cluster
    from millrace.clients.kafka.topics import Topic

app = typer.Typer(help="Topics: create, list, describe, alter, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic's name.", show_default=False)]
Partitions = Annotated[int | None, typer.Option("--partitions", min=1, show_default="the broker's", help="How many.")]
Retention = Annotated[
    str | None,
    typer.Option("--retention", metavar="DURATION", help="How long records are kept, as 1h, 7d or forever."),
]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A setting of the topic; may be given several times."),
]
Count = Annotated[
    bool, typer.Option("--count", help="Count the committed records as well: all of them are read for it.")
]


@app.command()
def create(
    name: Name,
    partitions: Partitions = None,
    replication: Annotated[
        int | None,
        typer.Option("--replication", min=1, show_default="the broker's", help="Copies of each partition."),
    ] = None,
    retention: Retention = None,
    config: Configs = None,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Create a topic."""
    from millrace.clients.kafka import topics

    cluster = chosen_cluster(kafka, kafka_config, data)
    topics.create(cluster, name, partitions, replication, _configs(config, retention))
    made = topics.describe(cluster, [name])[0]
    say(f"created {name}: {len(made.partitions)} partition(s), replication {made.replication}")


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics as well.")] = False,
    count: Count = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    from millrace.clients.kafka import topics

    cluster = chosen_cluster(kafka, kafka_config, data)
    found = topics.list_topics(cluster, internal=internal)
    counted = _counted(cluster, found) if count else None
    rows = [
        (
            one.name,
            len(one.partitions),
            one.replication,
            one.offsets,
            *_records(one, counted).values(),
            one.under_replicated,
        )
        for one in found
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
def describe(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", show_default=False, help="Topics.")],
    count: Count = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Describe topics: leader, replicas, in-sync set, offsets and size of each partition; settings."""
    from millrace.clients.kafka import topics

    cluster = chosen_cluster(kafka, kafka_config, data)
    found = topics.describe(cluster, names)
    sizes = _sizes(cluster, names, KAFKA.value(kafka) is None, data)
    counted = _counted(cluster, found) if count else None
    if as_json:
        show_json([_described(topic, sizes, counted) for topic in found])
        return
    for topic in found:
        rows = [
            (
                one.id,
                one.leader,
                one.replicas,
                one.in_sync,
                one.first,
                one.end,
                one.offsets,
                *([] if counted is None else [counted[topic.name, one.id]]),
                None if sizes is None else format_bytes(sizes.get((topic.name, one.id), 0)),
            )
            for one in topic.partitions
        ]
        records = ["records"] if count else []
        columns = ("partition", "leader", "replicas", "in sync", "first", "end", "offsets", *records, "size")
        show_table(columns, rows, title=topic.name)
        for key, value in topic.configs.items():
            out().print(f"  {key} = {value}", markup=False, soft_wrap=True)


@app.command()
def alter(
    name: Name,
    partitions: Partitions = None,
    retention: Retention = None,
    config: Configs = None,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="KEY", help="Put a setting back to the broker's default."),
    ] = None,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Change a topic: more partitions, settings."""
    from millrace.clients.kafka import topics

    configs = _configs(config, retention)
    if not (partitions or configs or reset):
        raise InvalidOption("nothing to change was given", hint="add --partitions, --retention, --config or --reset")
    topics.alter(chosen_cluster(kafka, kafka_config, data), name, partitions, configs, reset or ())
    say(f"changed {name}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", show_default=False, help="Topics.")],
    yes: Yes = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Delete topics with all their records."""
    from millrace.clients.kafka import topics

    cluster = chosen_cluster(kafka, kafka_config, data)
    most = sum(topic.offsets for topic in topics.describe(cluster, names))
    if confirm(f"delete {', '.join(names)} with {f'up to {most:,}' if most else 'no'} records?", yes):
        topics.delete(cluster, names)
        say(f"deleted {', '.join(names)}")


def _configs(config: list[str] | None, retention: str | None) -> dict[str, str]:
    given = dict(pairs(config, "--config"))
    if retention:
        forever = retention == "forever"
        given["retention.ms"] = "-1" if forever else str(int(parse_duration(retention) * 1000))
    return given


def _sizes(cluster: Cluster, names: list[str], ours: bool, data: str | None) -> dict[tuple[str, int], int] | None:
    from millrace.services.disk_usage import sizes_by_tool, sizes_on_disk

    return sizes_on_disk(KAFKA_DATA.value(data), names) if ours else sizes_by_tool(cluster, names)


def _counted(cluster: Cluster, found: list[Topic]) -> Counter[tuple[str, int]]:
    from millrace.clients.kafka.consumer import count_committed

    with progress_line() as renew:
        return count_committed(cluster, [one.name for one in found], lambda many: renew(f"{many:,} records counted"))


def _records(topic: Topic, counted: Counter[tuple[str, int]] | None) -> dict[str, int]:
    """The records of a topic, where they were counted."""
    return {} if counted is None else {"records": sum(counted[topic.name, one.id] for one in topic.partitions)}


def _described(
    topic: Topic, sizes: dict[tuple[str, int], int] | None, counted: Counter[tuple[str, int]] | None
) -> dict[str, Any]:
    partitions = [
        asdict(one)
        | {"offsets": one.offsets}
        | ({} if counted is None else {"records": counted[topic.name, one.id]})
        | {"bytes": None if sizes is None else sizes.get((topic.name, one.id), 0)}
        for one in topic.partitions
    ]
    return {
        "name": topic.name,
        "replication": topic.replication,
        "offsets": topic.offsets,
        **_records(topic, counted),
        "configs": dict(topic.configs),
        "partitions": partitions,
    }
