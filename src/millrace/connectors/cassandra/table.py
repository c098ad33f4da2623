"""A table of Cassandra: looked up, made when that is asked for, and held against the rows that go there.

Which generation of a table counts, as a row beside it: `keyspace.millrace_generations`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.clients.cassandra import Cassandra
from millrace.connectors.cassandra.types import Cql, column_type, fits, fitting, parse_type
from millrace.errors import InvalidTable, UnknownTable, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TABLE_NAME = re.compile(r"([A-Za-z]\w{0,47})\.([A-Za-z]\w{0,47})")
_COLUMNS = (
    "SELECT column_name, type, kind, position FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
)


@dataclass(frozen=True)
class CassandraTable:
    """The columns of a table, and which of them are its key."""

    name: str
    columns: Mapping[str, Cql]
    partition: tuple[str, ...]
    clustering: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        return self.partition + self.clustering

    def column(self, name: str) -> str | None:
        """The table's own name for a column; capitals do not matter, as in Spark."""
        if name in self.columns:
            return name
        return next((column for column in self.columns if column.lower() == name.lower()), None)

    def require(self, rows: StructType) -> dict[str, Cql]:
        """The columns that rows of this schema are written to; raises when they do not fit."""
        written: dict[str, Cql] = {}
        for field in rows.fields:
            own = self.column(field.name)
            if own is None:
                raise self._missing(field.name, field.dataType)
            if not fits(field.dataType, self.columns[own]):
                raise self._misfit(field.name, field.dataType, self.columns[own])
            written[own] = self.columns[own]
        absent = [name for name in self.key if name not in written]
        if absent:
            raise InvalidTable(
                f"the key of table {self.name} needs {', '.join(absent)}, which the rows do not have",
                why=f"its primary key is {', '.join(self.key)}",
                hint=did_you_mean(absent[0], rows.names),
            )
        return written

    def _missing(self, name: str, kind: Any) -> InvalidTable:
        return InvalidTable(
            f"table {self.name} has no column {name!r}",
            why=f"it has {', '.join(self.columns)}",
            hint=f"leave it out of the table that is written, or ALTER TABLE {self.name} ADD {quoted(name)} "
            f"{column_type(kind)}",
        )

    def _misfit(self, name: str, kind: Any, own: Cql) -> InvalidTable:
        return InvalidTable(
            f"column {name!r} is {kind.simpleString()}, which does not fit {own} of table {self.name}",
            why=f"{kind.simpleString()} fits {fitting(kind)}",
            hint=f"cast it in the table that is written, or change the column of {self.name}",
        )


@dataclass(frozen=True)
class TableDesign:
    """How a table shall be made."""

    name: str
    partition: tuple[str, ...]
    clustering: tuple[tuple[str, str], ...]
    """Columns and their order: ASC or DESC."""
    replication: int | Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return self.partition + tuple(name for name, _ in self.clustering)

    def make_keyspace(self, door: Cassandra) -> None:
        """Make the keyspace if it is not there."""
        keyspace, copies = quoted(self.name.partition(".")[0]), _copies(door, self.replication)
        statement = f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {copies}"
        door.execute(statement, doing="make a keyspace")

    def make(self, door: Cassandra, rows: StructType) -> CassandraTable:
        """Make the table for rows of a schema if it is not there; raises when it is there with another key."""
        table = look_up(door, self.name)
        if table is None:
            self.make_keyspace(door)
            door.execute(self.statement(rows), doing=f"make table {self.name}")
            table = require_table(door, self.name)
        self.require_same_key(table)
        return table

    def statement(self, rows: StructType) -> str:
        columns = ", ".join(f"{quoted(field.name)} {column_type(field.dataType)}" for field in rows.fields)
        names = {field.name.lower(): field.name for field in rows.fields}
        own = [quoted(names[name.lower()]) for name in self.key]
        first, rest = own[: len(self.partition)], own[len(self.partition) :]
        key = ", ".join([f"({', '.join(first)})", *rest])
        order = ", ".join(f"{name} {way}" for name, (_, way) in zip(rest, self.clustering, strict=True))
        options = f" WITH CLUSTERING ORDER BY ({order})" if order else ""
        return f"CREATE TABLE IF NOT EXISTS {quoted_table(self.name)} ({columns}, PRIMARY KEY ({key})){options}"

    def require_same_key(self, table: CassandraTable) -> None:
        """Raise when the table's key is another one."""
        ours = [tuple(table.column(name) or name for name in names) for names in (self.partition, self.key)]
        if ours != [table.partition, table.key]:
            raise InvalidTable(
                f"table {self.name} has another key than the sink names",
                why=f"its key is {_key_text(table.partition, table.clustering)}; the sink says "
                f"{_key_text(self.partition, self.key[len(self.partition) :])}",
                hint="name the table's own key, or write to another table",
            )


def look_up(door: Cassandra, name: str) -> CassandraTable | None:
    """The table of a name (keyspace.table), or None when there is none."""
    keyspace, _, table = name.partition(".")
    rows = door.execute(_COLUMNS, (keyspace, table), doing=f"look up table {name}")
    if not rows:
        return None
    by_position = sorted(rows, key=lambda row: (row[3], row[0]))
    partition, clustering = (
        tuple(column for column, _, kind, _ in by_position if kind == wanted)
        for wanted in ("partition_key", "clustering")
    )
    columns = {column: parse_type(kind) for column, kind, _, _ in rows}
    ordered = dict.fromkeys((*partition, *clustering, *sorted(columns)))
    return CassandraTable(name, {column: columns[column] for column in ordered}, partition, clustering)


def require_table(door: Cassandra, name: str) -> CassandraTable:
    """The table of a name; raises when there is none."""
    existing = look_up(door, name)
    if existing is not None:
        return existing
    keyspace, _, table = name.partition(".")
    here = door.execute("SELECT keyspace_name, table_name FROM system_schema.tables", doing="list the tables")
    keyspaces = sorted({one for one, _ in here if not one.startswith("system")})
    tables = sorted(one for where, one in here if where == keyspace)
    if not tables:
        hint = f"say create: true, or make it; {did_you_mean(keyspace, keyspaces)}"
        raise UnknownTable(f"there is no keyspace {keyspace!r} with tables at {door.address}", hint=hint)
    hint = f"say create: true, or make it; {did_you_mean(table, tables)}"
    raise UnknownTable(f"keyspace {keyspace!r} has no table {table!r}", hint=hint)


def make_like(door: Cassandra, name: str, new: str) -> None:
    """Make a table with the columns, the key and the settings of another."""
    require_table(door, name)
    with door.translated_errors(f"make table {new} as {name} is"):
        keyspace, table = name.split(".")
        door.session().cluster.refresh_table_metadata(keyspace, table)
        statement: str = door.session().cluster.metadata.keyspaces[keyspace].tables[table].as_cql_query()
    columns = statement.partition("(")[2]
    door.execute(f"CREATE TABLE IF NOT EXISTS {quoted_table(new)} ({columns}", doing=f"make table {new}")


def quoted(name: str) -> str:
    """A name as CQL takes it, whatever it has in it."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """`keyspace.table` as CQL takes it."""
    return ".".join(quoted(part) for part in name.split("."))


def _copies(door: Cassandra, replication: int | Mapping[str, Any] | None) -> str:
    if isinstance(replication, int):
        return f"{{'class': 'SimpleStrategy', 'replication_factor': {replication}}}"
    copies = dict(replication) if replication else _usual_copies(door)
    factors = "".join(f", '{name}': {int(number)}" for name, number in copies.items())
    return f"{{'class': 'NetworkTopologyStrategy'{factors}}}"


def _usual_copies(door: Cassandra) -> dict[str, int]:
    """Three copies in our datacenter, or as many as it has nodes."""
    ((here,),) = door.execute("SELECT data_center FROM system.local", doing="ask for the datacenter")
    ours = door.options.get("datacenter", here)
    others = [one for (one,) in door.execute("SELECT data_center FROM system.peers", doing="ask for the nodes")]
    nodes = sum(one == ours for one in [here, *others])
    return {ours: max(1, min(3, nodes))}


def _key_text(partition: Sequence[str], clustering: Sequence[str]) -> str:
    return f"({', '.join(partition)})" + "".join(f", {name}" for name in clustering)


_TABLE = "millrace_generations"


def publish_alias(door: Cassandra, pipeline: str, generation: int, tables: Mapping[str, str]) -> None:
    """Say which tables count, by the names that the pipeline's file has; those of one keyspace change together."""
    for keyspace in sorted({name.partition(".")[0] for name in tables}):
        own = quoted_table(f"{keyspace}.{_TABLE}")
        door.execute(
            f"CREATE TABLE IF NOT EXISTS {own} (pipeline text, name text, current text, generation int, at timestamp, "
            "PRIMARY KEY (pipeline, name))",
            doing="make the table of generations",
        )
        rows = [(name, now) for name, now in sorted(tables.items()) if name.startswith(f"{keyspace}.")]
        insert = f"INSERT INTO {own} (pipeline, name, current, generation, at) VALUES (?, ?, ?, ?, toTimestamp(now()))"  # noqa: S608 - quoted
        # One partition: seen together or not at all.
        door.execute(
            f"BEGIN BATCH {'; '.join([insert] * len(rows))}; APPLY BATCH",
            [value for name, now in rows for value in (pipeline, name, now, generation)],
            doing="note the current generation",
        )


def current_table(door: Cassandra, name: str) -> str:
    """The table that counts for a name that a pipeline's file has; the name itself where nobody says otherwise."""
    keyspace = name.partition(".")[0]
    here = door.execute(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", (keyspace, _TABLE)
    )
    if not here:
        return name
    rows = door.execute(
        f"SELECT current FROM {quoted(keyspace)}.{quoted(_TABLE)} WHERE name = ? ALLOW FILTERING",  # noqa: S608 - quoted
        (name,),
    )
    return str(rows[0][0]) if rows else name
