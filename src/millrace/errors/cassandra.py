"""Cassandra: our node's folder, the cluster, its tables and rows."""

from __future__ import annotations

from millrace.errors.base import InputError, RunError


class NoCassandra(InputError):
    """No Cassandra was named and none of ours runs here."""

    condition = "cassandra.none"


class CassandraDenied(InputError):
    """Cassandra refuses the user, the certificate, or what is asked for."""

    condition = "cassandra.access-denied"


class CassandraInUse(InputError):
    """Another process uses this data folder of a Cassandra."""

    condition = "cassandra.data-in-use"


class CassandraMismatch(InputError):
    """The data folder is not one of a Cassandra of ours."""

    condition = "cassandra.data-mismatch"


class UnknownTable(InputError):
    """A keyspace or a table that does not exist."""

    condition = "cassandra.table-unknown"


class InvalidTable(InputError):
    """A table of Cassandra and the rows for it do not fit: a column, a type or the key."""

    condition = "cassandra.table-invalid"


class InvalidCql(InputError):
    """A statement that Cassandra cannot parse or carry out as it is."""

    condition = "cassandra.cql-invalid"


class CassandraUnreachable(RunError):
    """No node of Cassandra answers at the address."""

    condition = "cassandra.unreachable"


class CassandraFailed(RunError):
    """Cassandra failed a request for a reason of its own."""

    condition = "cassandra.failed"


class RowRefused(RunError):
    """A row that a table of Cassandra will never take, however often it is sent."""

    condition = "cassandra.row-refused"
