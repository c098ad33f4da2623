"""`millrace kafka groups`: members, lag, and moving a group to another place."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from millrace.cli.options import AsJson, DataFolder, KafkaAddress, KafkaConfig, Yes, chosen_cluster, confirm
from millrace.cli.output import out, say, show_json, show_rows, show_table
from millrace.units import parse_start

app = typer.Typer(help="Consumer groups: list, describe, reset, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)]


@app.command("list")
def list_(
    kafka: KafkaAddress = None, kafka_config: KafkaConfig = None, data: DataFolder = None, as_json: AsJson = False
) -> None:
    """List consumer groups."""
    from millrace.clients.kafka import consumer_groups

    found = consumer_groups.list_groups(chosen_cluster(kafka, kafka_config, data))
    rows = [(one.name, one.state, len(one.members), one.topics, one.lag) for one in found]
    columns = {"name": "group", "state": "state", "members": "members", "topics": "topics", "lag": "lag"}
    show_rows(columns, rows, as_json=as_json)


@app.command()
def describe(
    name: Name,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Describe a group: its members, and its offset and lag in each partition."""
    from millrace.clients.kafka import consumer_groups

    group = consumer_groups.describe(chosen_cluster(kafka, kafka_config, data), name)
    if as_json:
        positions = [asdict(one) | {"lag": one.lag} for one in group.positions]
        show_json(asdict(group) | {"positions": positions, "lag": group.lag})
        return
    out().print(f"group {group.name}: {group.state}, lag {group.lag:,}", markup=False, soft_wrap=True)
    rows = [(one.topic, one.partition, one.offset, one.end, one.lag, one.member) for one in group.positions]
    show_table(("topic", "partition", "offset", "end", "lag", "member"), rows)
    if group.members:
        members = [(one.id, one.client, one.host, len(one.partitions)) for one in group.members]
        show_table(("member", "client", "host", "partitions"), members)


@app.command()
def reset(
    name: Name,
    topic: Annotated[str, typer.Option("--topic", help="The topic to move in.", show_default=False)],
    to: Annotated[
        str,
        typer.Option("--to", metavar="PLACE", show_default=False, help="earliest, latest, an offset, or a time."),
    ],
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change and stop.")] = False,
    yes: Yes = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Move a group to another place, after showing what would change."""
    from millrace.clients.kafka import consumer_groups

    cluster = chosen_cluster(kafka, kafka_config, data)
    moves = consumer_groups.plan_reset(cluster, name, topic, parse_start(to), partition)
    if as_json:
        show_json(moves)
    else:
        rows = [(one.topic, one.partition, one.before, one.after) for one in moves]
        show_table(("topic", "partition", "offset now", "offset then"), rows)
    if all(one.before is None for one in moves):
        say(f"the group {name!r} has no offsets in {topic!r} yet: they would be its first")
    if dry_run:
        say("nothing was changed (--dry-run)")
    elif confirm(f"move group {name}?", yes):
        consumer_groups.apply_reset(cluster, name, moves)
        say(f"moved {name}")


@app.command()
def delete(
    name: Name, yes: Yes = False, kafka: KafkaAddress = None, kafka_config: KafkaConfig = None, data: DataFolder = None
) -> None:
    """Delete a group and its offsets."""
    from millrace.clients.kafka import consumer_groups

    cluster = chosen_cluster(kafka, kafka_config, data)
    consumer_groups.require(cluster, name)
    if confirm(f"delete group {name} and its offsets?", yes):
        consumer_groups.delete(cluster, name)
        say(f"deleted {name}")
