"""SQLite as a source and a sink of Millrace pipelines: `sqlite: FILE` with `table: NAME`."""

from millrace_sqlite.sink import SqliteSink
from millrace_sqlite.source import SqliteSource

__all__ = ["SqliteSink", "SqliteSource"]
