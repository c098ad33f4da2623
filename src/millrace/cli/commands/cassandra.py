"""`millrace cassandra`: start, stop and inspect a Cassandra of our own, and CQL for any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli import services
from millrace.cli.app import CASSANDRA_PANEL, SERVICE_PANEL, App, OptionGroup
from millrace.cli.options import AsJson, warn
from millrace.cli.output import print_line, print_result, show_json, show_rows
from millrace.cli.services import Secure, detach_option, port_option, start_until_stopped
from millrace.errors import NoCassandra
from millrace.settings import CASSANDRA, CASSANDRA_CONFIG, CASSANDRA_DATA, CASSANDRA_HEAP
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.clients.cassandra import Cassandra

CassandraData = Annotated[str | None, CASSANDRA_PANEL.setting(CASSANDRA_DATA, "DIR")]

app = App(help="A Cassandra of your own, and CQL for any.")


@dataclass(frozen=True)
class CassandraConnectionOptions(OptionGroup):
    """Which Cassandra to use."""

    cassandra: Annotated[str | None, CASSANDRA_PANEL.setting(CASSANDRA, "HOST:PORT")] = None
    cassandra_config: Annotated[str | None, CASSANDRA_PANEL.setting(CASSANDRA_CONFIG, "FILE")] = None

    def client(self, data: str | None = None) -> Cassandra:
        """Return a client for the Cassandra that was named, else for ours that runs in the data directory."""
        from millrace.clients.cassandra import Cassandra
        from millrace.services import cassandra as service

        address = CASSANDRA.value(self.cassandra)
        if address:
            return Cassandra.at(address, CASSANDRA_CONFIG.value(self.cassandra_config), environment=True, notify=warn)
        folder = CASSANDRA_DATA.value(data)
        ring = service.running(folder)
        if ring is None:
            raise NoCassandra(
                f"there is no Cassandra to use: none was named, and none of ours runs in {folder}",
                hint="start one with millrace cassandra up --detach, or name one with --cassandra HOST:PORT",
            )
        return service.client_of(folder, ring)


@app.command()
def up(
    port: int | None = port_option("Port for CQL."),
    data: CassandraData = None,
    detach: bool = detach_option("cassandra"),
    secure: Secure = None,
    heap: str | None = SERVICE_PANEL.setting(CASSANDRA_HEAP, "SIZE"),
) -> None:
    """Start Cassandra and keep it running until Ctrl-C, or in the background with --detach."""
    from millrace.services.cassandra import CassandraOptions, CassandraService

    service = CassandraService(
        CASSANDRA_DATA.value(data), CassandraOptions(port, secure, CASSANDRA_HEAP.value(heap), detach)
    )
    start_until_stopped(service, detach=detach, data=data)


@app.command()
def down(data: CassandraData = None) -> None:
    """Stop the Cassandra of a data directory; its data is kept."""
    from millrace.services import cassandra as service

    service.stop(CASSANDRA_DATA.value(data))
    print_line("stopped; the data is kept")


@app.command()
def status(cassandra: CassandraConnectionOptions, data: CassandraData = None, as_json: AsJson = False) -> None:
    """Show the nodes with their datacenters, and the tables with their keyspaces."""
    client = cassandra.client(data)
    cluster = _status(client)
    if as_json:
        show_json(cluster)
        return
    print_result(f"Cassandra {cluster['version']} at {client.address}")
    columns = {"address": "node", "datacenter": "datacenter"}
    show_rows(columns, [tuple(node.values()) for node in cluster["nodes"]], as_json=False)
    print_line(f"{len(cluster['tables'])} tables: {', '.join(cluster['tables']) or 'none'}")


@app.command()
def cql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One CQL statement.")],
    cassandra: CassandraConnectionOptions,
    data: CassandraData = None,
    as_json: AsJson = False,
) -> None:
    """Run one CQL statement and show its rows."""
    client = cassandra.client(data)
    with client.translated_errors("run it"):
        result = client.session().execute(statement.strip().removesuffix(";"))
        rows = [[_readable(value) for value in row] for row in result]
    if result.column_names:
        show_rows({name: name for name in result.column_names}, rows, as_json=as_json)
    if not as_json:
        print_line(format_count(len(rows), "row") if result.column_names else "done")


@contextmanager
def node(
    wanted: bool, options: CassandraConnectionOptions, notify: Callable[[str], None]
) -> Iterator[Callable[[], Cassandra]]:
    """Yield the Cassandra that is named or already runs; else, when one is wanted, ours while the block runs."""
    from millrace.services.cassandra import CassandraOptions, CassandraService

    if not wanted:
        yield options.client
        return
    own = CassandraService(CASSANDRA_DATA.value(), CassandraOptions(heap=CASSANDRA_HEAP.value()))

    def find() -> Cassandra:
        try:
            return options.client()
        except NoCassandra:
            notify("Cassandra is starting")
            raise

    with services.found_or_own(find, own) as client:
        yield lambda: client


def _status(client: Cassandra) -> dict[str, Any]:
    ((version, here),) = client.execute(
        "SELECT release_version, data_center FROM system.local", doing="ask for its state"
    )
    others = client.execute("SELECT peer, data_center FROM system.peers", doing="ask for its nodes")
    tables = client.execute("SELECT keyspace_name, table_name FROM system_schema.tables", doing="list the tables")
    first = client.address.partition(",")[0]
    return {
        "version": version,
        "address": client.address,
        "nodes": [
            {"address": first, "datacenter": here},
            *({"address": peer, "datacenter": datacenter} for peer, datacenter in others),
        ],
        "tables": sorted(f"{space}.{name}" for space, name in tables if not space.startswith("system")),
    }


def _readable(value: Any) -> Any:
    """Return a value as a person reads it; a time with its zone."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if hasattr(value, "isoformat") and hasattr(value, "hour"):
        return f"{value.isoformat(timespec='milliseconds')}Z"
    return value if isinstance(value, int | float | bool | None) else str(value)
