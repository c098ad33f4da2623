"""`millrace kafka groups`: members and lag of consumer groups, and moving a group to other offsets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from millrace.cli.app import RECORDS_PANEL, App
from millrace.cli.options import AsJson, KafkaOptions, Yes, confirm
from millrace.cli.output import print_line, print_result, show_json, show_rows, show_table
from millrace.units import parse_start

app = App(help="Consumer groups: list, describe, reset, delete.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.", show_default=False)]


@app.command("list")
def list_(kafka: KafkaOptions, as_json: AsJson = False) -> None:
    """List consumer groups."""
    from millrace.clients.kafka import consumer_groups

    groups = consumer_groups.list_groups(kafka.cluster())
    rows = [(group.name, group.state, len(group.members), group.topics, group.lag) for group in groups]
    columns = {"name": "group", "state": "state", "members": "members", "topics": "topics", "lag": "lag"}
    show_rows(columns, rows, as_json=as_json)


@app.command()
def describe(name: GroupName, kafka: KafkaOptions, as_json: AsJson = False) -> None:
    """Describe a group: its members, and its offset and lag in each partition."""
    from millrace.clients.kafka import consumer_groups

    group = consumer_groups.describe(kafka.cluster(), name)
    if as_json:
        positions = [asdict(position) | {"lag": position.lag} for position in group.positions]
        show_json(asdict(group) | {"positions": positions, "lag": group.lag})
        return
    print_result(f"group {group.name}: {group.state}, lag {group.lag:,}")
    rows = [(at.topic, at.partition, at.offset, at.end, at.lag, at.member) for at in group.positions]
    show_table(("topic", "partition", "offset", "end", "lag", "member"), rows)
    if group.members:
        members = [(member.id, member.client, member.host, len(member.partitions)) for member in group.members]
        show_table(("member", "client", "host", "partitions"), members)


@app.command()
def reset(
    name: GroupName,
    *,
    topic: str = RECORDS_PANEL.option("The topic to move in.", "TOPIC", show_default=False, default=...),
    to: str = RECORDS_PANEL.option(
        "earliest, latest, an offset, or a time.", "POSITION", show_default=False, default=...
    ),
    partition: int | None = RECORDS_PANEL.option("Only this partition.", "N", min=0),
    dry_run: bool = RECORDS_PANEL.flag("Show what would change, and change nothing."),
    kafka: KafkaOptions,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a group to other offsets, after showing what would change."""
    from millrace.clients.kafka import consumer_groups

    cluster = kafka.cluster()
    moves = consumer_groups.plan_reset(cluster, name, topic, parse_start(to), partition)
    if as_json:
        show_json(moves)
    else:
        rows = [(move.topic, move.partition, move.before, move.after) for move in moves]
        show_table(("topic", "partition", "offset now", "offset then"), rows)
    if all(move.before is None for move in moves):
        print_line(f"the group {name!r} has no offsets in {topic!r} yet: they would be its first")
    if dry_run:
        print_line("nothing was changed (--dry-run)")
    elif confirm(f"move group {name}?", yes):
        consumer_groups.apply_reset(cluster, name, moves)
        print_line(f"moved {name}")


@app.command()
def delete(name: GroupName, kafka: KafkaOptions, yes: Yes = False) -> None:
    """Delete a group and its offsets."""
    from millrace.clients.kafka import consumer_groups

    cluster = kafka.cluster()
    consumer_groups.require(cluster, name)
    if confirm(f"delete group {name} and its offsets?", yes):
        consumer_groups.delete(cluster, name)
        print_line(f"deleted {name}")
