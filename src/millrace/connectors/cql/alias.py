"""Which generation of a table counts, as a row beside it: `keyspace.millrace_generations`."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.clients.cassandra import Cassandra
from millrace.connectors.cql.table import quoted, quoted_table

_TABLE = "millrace_generations"


def publish(door: Cassandra, pipeline: str, generation: int, tables: Mapping[str, str]) -> None:
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
