"""`millrace kafka`: start, stop and inspect a Kafka of our own, and work on any cluster."""

from __future__ import annotations

from typing import Annotated

from millrace.cli.app import SERVICE_PANEL, App
from millrace.cli.commands.kafka import consume, groups, produce, topics
from millrace.cli.options import AsJson, DataFolder, KafkaOptions, pairs
from millrace.cli.output import print_line, print_result, show_json, show_table
from millrace.cli.services import Secure, detach_option, port_option, start_until_stopped
from millrace.settings import KAFKA_DATA, KAFKA_HEAP
from millrace.units import format_count

app = App(help="A Kafka of your own, and everyday work on any cluster.")
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)


@app.command()
def up(
    brokers: int | None = SERVICE_PANEL.option("Number of brokers.", "N", min=1, max=9, show_default="1, or as before"),
    port: int | None = port_option("Port of the first broker; the others use the next ones."),
    data: DataFolder = None,
    detach: bool = detach_option("kafka"),
    secure: Secure = None,
    heap: str | None = SERVICE_PANEL.setting(KAFKA_HEAP, "SIZE"),
    config: Annotated[
        list[str] | None, SERVICE_PANEL.option("A broker property; may be given several times.", "KEY=VALUE")
    ] = None,
) -> None:
    """Start Kafka and keep it running until Ctrl-C, or in the background with --detach."""
    from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

    options = KafkaClusterOptions(
        brokers, port, secure, KAFKA_HEAP.value(heap), detach, dict(pairs(config, "--config"))
    )
    start_until_stopped(KafkaCluster(KAFKA_DATA.value(data), options), detach=detach, data=data)


@app.command()
def down(data: DataFolder = None) -> None:
    """Stop the Kafka of a data directory; its data is kept."""
    from millrace.services import kafka as service

    nodes = service.stop(KAFKA_DATA.value(data))
    print_line(f"stopped {format_count(len(nodes), 'broker')}; the data is kept")


@app.command()
def status(kafka: KafkaOptions, as_json: AsJson = False) -> None:
    """Show the brokers of the cluster, what each leads and holds, and whether every replica is in sync."""
    from millrace.clients.kafka.topics import read_status

    cluster = read_status(kafka.cluster())
    if as_json:
        show_json(cluster)
        return
    print_result(f"cluster {cluster.cluster_id} at {cluster.bootstrap}")
    rows = [(broker.id, broker.address, broker.leads, broker.holds) for broker in cluster.brokers]
    show_table(("broker", "address", "leads", "replicas"), rows)
    behind = f"{cluster.under_replicated} partitions have a replica behind"
    in_sync = behind if cluster.under_replicated else "all in sync"
    print_line(f"{format_count(cluster.topics, 'topic')}, {format_count(cluster.partitions, 'partition')}, {in_sync}")
