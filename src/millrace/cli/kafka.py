"""`millrace kafka`: our own broker(s) up, down and seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli import consume, groups, produce, topics
from millrace.cli.options import (
    AsJson,
    DataFolder,
    KafkaAddress,
    KafkaConfig,
    chosen_cluster,
    pairs,
    setting_option,
)
from millrace.cli.output import fetching, out, say, show_json, show_table, status_line
from millrace.cli.signals import interruptible, until_stopped
from millrace.errors import NoCluster
from millrace.settings import KAFKA_DATA, KAFKA_HEAP

if TYPE_CHECKING:
    from threading import Event

    from millrace.clients.cluster import Cluster
    from millrace.services.kafka import Kafka

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
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave it running; stop it with millrace kafka down.")
    ] = False,
    secure: Annotated[
        bool | None,
        typer.Option(
            "--secure/--plain",
            show_default="plain, or as the data was",
            help="Ask clients for TLS and a password; the client properties are written beside the data.",
        ),
    ] = None,
    heap: Annotated[str | None, setting_option(KAFKA_HEAP, "SIZE", "--heap")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A property of the brokers; may be given several times."),
    ] = None,
) -> None:
    """Start Kafka and keep it running until Ctrl-C, or in the background with --detach."""
    from millrace.services.kafka import Kafka, Options

    options = Options(brokers, port, secure, KAFKA_HEAP.value(heap), detach, dict(pairs(config, "--config")))
    service = Kafka(KAFKA_DATA.value(data), options)
    if detach:
        start(service)
        say(f"it goes on in the background; stop it with: millrace kafka down{_data_flag(data)}")
        return
    with until_stopped() as stop:
        try:
            start(service)
            say("Ctrl-C stops it")
            _stay(service, stop)
        finally:
            service.stop()
    say("stopped; the data is kept")


def _stay(service: Kafka, stop: Event) -> None:
    """Wait for Ctrl-C, or until somebody else has stopped it (`kafka down`); a broker that fails raises."""
    while not stop.wait(0.5):
        gone = service.died()
        if gone and not gone.was_stopped():
            raise gone.failure(f"{gone.name} ended by itself")
        if gone:
            return


def start(service: Kafka) -> Cluster:
    """Start a service, telling what is being waited for and then the address (on standard output)."""
    from millrace.services.kafka import client_properties

    with interruptible(), fetching() as progress, status_line() as status:
        cluster = service.start(status, progress)
    out().print(f"Kafka is up at {cluster.bootstrap}", markup=False, soft_wrap=True)
    if cluster.options:
        say(f"clients need --kafka-config {client_properties(service.folder)}")
    return cluster


@contextmanager
def broker(kafka: str | None, config: str | None, data: str | None) -> Iterator[Cluster]:
    """The cluster that is named or runs already; else one of ours meanwhile."""
    from millrace.services.kafka import Kafka

    service = None
    try:
        try:
            cluster = chosen_cluster(kafka, config, data)
        except NoCluster:
            service = Kafka(KAFKA_DATA.value(data))
            cluster = start(service)
        yield cluster
    finally:
        if service:
            service.stop()


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
    from millrace.clients.status import read_status

    found = read_status(chosen_cluster(kafka, kafka_config, data))
    if as_json:
        show_json(found)
        return
    out().print(f"cluster {found.cluster_id} at {found.bootstrap}", markup=False, soft_wrap=True)
    rows = [(broker.id, broker.address, broker.leads, broker.holds) for broker in found.brokers]
    show_table(("broker", "address", "leads", "replicas"), rows)
    behind = f"{found.under_replicated} partitions have a replica behind" if found.under_replicated else "all in sync"
    say(f"{found.topics} topics, {found.partitions} partitions, {behind}")


def _data_flag(data: str | None) -> str:
    return f" --data {data}" if data else ""
