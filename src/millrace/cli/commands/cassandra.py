"""`millrace cassandra`: our own Cassandra up, down and seen, and CQL for any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli import services
from millrace.cli.options import AsJson, setting_option, warn
from millrace.cli.output import out, say, show_json, show_rows
from millrace.cli.services import Secure, detach_option, start_until_stopped
from millrace.errors import NoCassandra
from millrace.settings import CASSANDRA, CASSANDRA_CONFIG, CASSANDRA_DATA, CASSANDRA_HEAP
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.clients.cassandra import Cassandra

CassandraAddress = Annotated[str | None, setting_option(CASSANDRA, "HOST:PORT")]
CassandraConfig = Annotated[str | None, setting_option(CASSANDRA_CONFIG, "FILE")]
DataFolder = Annotated[str | None, setting_option(CASSANDRA_DATA, "DIR", "--data")]

app = typer.Typer(help="A real Cassandra of your own, and CQL for any.", no_args_is_help=True)


@app.command()
def up(
    port: Annotated[
        int | None, typer.Option("--port", min=1024, max=65000, show_default="a free one", help="The port for CQL.")
    ] = None,
    data: DataFolder = None,
    detach: Annotated[bool, detach_option("cassandra")] = False,
    secure: Secure = None,
    heap: Annotated[str | None, setting_option(CASSANDRA_HEAP, "SIZE", "--heap")] = None,
) -> None:
    """Start Cassandra and keep it running until Ctrl-C, or in the background with --detach."""
    from millrace.services.cassandra import CassandraOptions, CassandraService

    service = CassandraService(
        CASSANDRA_DATA.value(data), CassandraOptions(port, secure, CASSANDRA_HEAP.value(heap), detach)
    )
    start_until_stopped(service, detach=detach, data=data)


@app.command()
def down(data: DataFolder = None) -> None:
    """Stop the Cassandra of a data folder; its data is kept."""
    from millrace.services import cassandra as service

    service.stop(CASSANDRA_DATA.value(data))
    say("stopped; the data is kept")


@app.command()
def status(
    cassandra: CassandraAddress = None,
    cassandra_config: CassandraConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Which nodes there are, in which datacenter, and the tables with their keyspaces."""
    door = chosen(cassandra, cassandra_config, data)
    found = _status(door)
    if as_json:
        show_json(found)
        return
    out().print(f"Cassandra {found['version']} at {door.address}", markup=False, soft_wrap=True)
    columns = {"address": "node", "datacenter": "datacenter"}
    show_rows(columns, [tuple(node.values()) for node in found["nodes"]], as_json=False)
    say(f"{len(found['tables'])} tables: {', '.join(found['tables']) or 'none'}")


@app.command()
def cql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One statement of CQL.")],
    cassandra: CassandraAddress = None,
    cassandra_config: CassandraConfig = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run one statement of CQL and show its rows."""
    door = chosen(cassandra, cassandra_config, data)
    with door.translated_errors("run it"):
        result = door.session().execute(statement.strip().removesuffix(";"))
        rows = [[_shown(one) for one in row] for row in result]
    if result.column_names:
        show_rows({name: name for name in result.column_names}, rows, as_json=as_json)
    if not as_json:
        say(format_count(len(rows), "row") if result.column_names else "done")


def chosen(cassandra: str | None, config: str | None, data: str | None) -> Cassandra:
    """The Cassandra to work on: the one that was named, else ours that runs in the data folder."""
    from millrace.clients.cassandra import Cassandra
    from millrace.services import cassandra as service

    address = CASSANDRA.value(cassandra)
    if address:
        return Cassandra.at(address, CASSANDRA_CONFIG.value(config), environment=True, notify=warn)
    folder = CASSANDRA_DATA.value(data)
    ring = service.running(folder)
    if ring is None:
        raise NoCassandra(
            f"there is no Cassandra to use: none was named, and none of ours runs in {folder}",
            hint="start one with millrace cassandra up --detach, or name one with --cassandra HOST:PORT",
        )
    return service.client_of(folder, ring)


@contextmanager
def node(
    wanted: bool, cassandra: str | None, config: str | None, doing: Callable[[str], None]
) -> Iterator[Callable[[], Cassandra]]:
    """The Cassandra that is named or runs already; else, when one is wanted, ours for as long as the block."""
    from millrace.services.cassandra import CassandraOptions, CassandraService

    if not wanted:
        yield lambda: chosen(cassandra, config, None)
        return
    own = CassandraService(CASSANDRA_DATA.value(), CassandraOptions(heap=CASSANDRA_HEAP.value()))

    def find() -> Cassandra:
        try:
            return chosen(cassandra, config, None)
        except NoCassandra:
            doing("Cassandra is starting")
            raise

    with services.found_or_own(find, own) as door:
        yield lambda: door


def _status(door: Cassandra) -> dict[str, Any]:
    ((version, here),) = door.execute(
        "SELECT release_version, data_center FROM system.local", doing="ask for its state"
    )
    others = door.execute("SELECT peer, data_center FROM system.peers", doing="ask for its nodes")
    tables = door.execute("SELECT keyspace_name, table_name FROM system_schema.tables", doing="list the tables")
    first = door.address.partition(",")[0]
    return {
        "version": version,
        "address": door.address,
        "nodes": [
            {"address": first, "datacenter": here},
            *({"address": peer, "datacenter": place} for peer, place in others),
        ],
        "tables": sorted(f"{space}.{name}" for space, name in tables if not space.startswith("system")),
    }


def _shown(value: Any) -> Any:
    """A value as a person reads it; a time with its zone."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if hasattr(value, "isoformat") and hasattr(value, "hour"):
        return f"{value.isoformat(timespec='milliseconds')}Z"
    return value if isinstance(value, int | float | bool | None) else str(value)
