"""`millrace kafka topics`: made, listed, described, changed, deleted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import (
    AsJson,
    DataFolder,
    KafkaAddress,
    KafkaConfig,
    Yes,
    chosen_cluster,
    confirm,
    pairs,
)
from millrace.cli.output import out, say, show_json, show_rows, show_table
from millrace.errors import InvalidOption
from millrace.settings import KAFKA, KAFKA_DATA
from millrace.units import format_bytes, parse_duration

if TYPE_CHECKING:
    from millrace.clients.cluster import Cluster

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
    from millrace.clients import topics

    cluster = chosen_cluster(kafka, kafka_config, data)
    topics.create(cluster, name, partitions, replication, _configs(config, retention))
    made = topics.describe(cluster, [name])[0]
    say(f"created {name}: {len(made.partitions)} partition(s), replication {made.replication}")


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics as well.")] = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    from millrace.clients import topics

    found = topics.list_topics(chosen_cluster(kafka, kafka_config, data), internal=internal)
    rows = [(one.name, len(one.partitions), one.replication, one.records, one.under_replicated) for one in found]
    columns = {
        "name": "topic",
        "partitions": "partitions",
        "replication": "replication",
        "records": "records",
        "under_replicated": "under-replicated",
    }
    show_rows(columns, rows, as_json=as_json)


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", show_default=False, help="Topics.")],
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Describe topics: leader, replicas, in-sync set, offsets and size of each partition; settings."""
    from millrace.clients import topics

    cluster = chosen_cluster(kafka, kafka_config, data)
    found = topics.describe(cluster, names)
    sizes = _sizes(cluster, names, KAFKA.value(kafka) is None, data)
    if as_json:
        show_json([_described(topic, sizes) for topic in found])
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
                one.records,
                None if sizes is None else format_bytes(sizes.get((topic.name, one.id), 0)),
            )
            for one in topic.partitions
        ]
        columns = ("partition", "leader", "replicas", "in sync", "first", "end", "records", "size")
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
    from millrace.clients import topics

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
    from millrace.clients import topics

    cluster = chosen_cluster(kafka, kafka_config, data)
    records = sum(topic.records for topic in topics.describe(cluster, names))
    if confirm(f"delete {', '.join(names)} with {records:,} records?", yes):
        topics.delete(cluster, names)
        say(f"deleted {', '.join(names)}")


def _configs(config: list[str] | None, retention: str | None) -> dict[str, str]:
    given = dict(pairs(config, "--config"))
    if retention:
        forever = retention == "forever"
        given["retention.ms"] = "-1" if forever else str(int(parse_duration(retention) * 1000))
    return given


def _sizes(cluster: Cluster, names: list[str], ours: bool, data: str | None) -> dict[tuple[str, int], int] | None:
    from millrace.services.sizes import sizes_by_tool, sizes_on_disk

    return sizes_on_disk(KAFKA_DATA.value(data), names) if ours else sizes_by_tool(cluster, names)


def _described(topic: Any, sizes: dict[tuple[str, int], int] | None) -> dict[str, Any]:
    partitions = [
        asdict(one) | {"records": one.records, "bytes": None if sizes is None else sizes.get((topic.name, one.id), 0)}
        for one in topic.partitions
    ]
    return {
        "name": topic.name,
        "replication": topic.replication,
        "records": topic.records,
        "configs": dict(topic.configs),
        "partitions": partitions,
    }
