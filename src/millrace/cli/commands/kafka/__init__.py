"""`millrace kafka`: our own broker(s) up, down and seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli import services
from millrace.cli.commands.kafka import consume, groups, produce, topics
from millrace.cli.options import AsJson, DataFolder, KafkaAddress, KafkaConfig, chosen_cluster, pairs, setting_option
from millrace.cli.output import out, say, show_json, show_table
from millrace.cli.services import Secure, detach_option, start_until_stopped
from millrace.settings import KAFKA_DATA, KAFKA_HEAP
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster

app = typer.Typer(help="A real Kafka of your own, and everyday work on any cluster.", no_args_is_help=True)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)


@app.command()
def up(
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", min=1, max=9, show_default="1, or as many as the data has", help="How many brokers."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=1024,
            max=65000,
            show_default="a free one",
            help="The first broker's port; the others have the next ones.",
        ),
    ] = None,
    data: DataFolder = None,
    detach: Annotated[bool, detach_option("kafka")] = False,
    secure: Secure = None,
    heap: Annotated[str | None, setting_option(KAFKA_HEAP, "SIZE", "--heap")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A property of the brokers; may be given several times."),
    ] = None,
) -> None:
    """Start Kafka and keep it running until Ctrl-C, or in the background with --detach."""
    from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

    options = KafkaClusterOptions(
        brokers, port, secure, KAFKA_HEAP.value(heap), detach, dict(pairs(config, "--config"))
    )
    start_until_stopped(KafkaCluster(KAFKA_DATA.value(data), options), detach=detach, data=data)


@contextmanager
def broker(kafka: str | None, config: str | None, data: str | None) -> Iterator[Cluster]:
    """The cluster that is named or runs already; else one of ours meanwhile."""
    from millrace.services.kafka import KafkaCluster

    own = KafkaCluster(KAFKA_DATA.value(data))
    with services.found_or_own(lambda: chosen_cluster(kafka, config, data), own) as cluster:
        yield cluster


@app.command()
def down(data: DataFolder = None) -> None:
    """Stop the Kafka of a data folder; its data is kept."""
    from millrace.services import kafka as service

    nodes = service.stop(KAFKA_DATA.value(data))
    say(f"stopped {len(nodes)} broker{'s' * (len(nodes) != 1)}; the data is kept")


@app.command()
def status(
    kafka: KafkaAddress = None, kafka_config: KafkaConfig = None, data: DataFolder = None, as_json: AsJson = False
) -> None:
    """Which brokers are in the cluster, what each leads and holds, and whether every replica is in sync."""
    from millrace.clients.kafka.topics import read_status

    found = read_status(chosen_cluster(kafka, kafka_config, data))
    if as_json:
        show_json(found)
        return
    out().print(f"cluster {found.cluster_id} at {found.bootstrap}", markup=False, soft_wrap=True)
    rows = [(broker.id, broker.address, broker.leads, broker.holds) for broker in found.brokers]
    show_table(("broker", "address", "leads", "replicas"), rows)
    behind = f"{found.under_replicated} partitions have a replica behind" if found.under_replicated else "all in sync"
    say(f"{format_count(found.topics, 'topic')}, {format_count(found.partitions, 'partition')}, {behind}")
