"""Errors of the systems that a pipeline uses: Kafka, Cassandra, Kinesis, schema registry, feeds and dead letters."""

from __future__ import annotations

from millrace.errors.base import InputError, RunError


class DataDirInUse(InputError):
    """Another process uses this data directory."""

    condition = "kafka.data-in-use"


class DataDirMismatch(InputError):
    """The data directory belongs to a cluster of another shape, or is not a broker's at all."""

    condition = "kafka.data-mismatch"


class NoCluster(InputError):
    """No cluster was named and none of ours runs here."""

    condition = "kafka.none"


class AccessDenied(InputError):
    """The cluster refuses the credentials, the certificate, or what they are used for."""

    condition = "kafka.access-denied"


class UnknownTopic(InputError):
    """A topic that does not exist, or a partition that it does not have."""

    condition = "kafka.topic-unknown"


class InvalidTopic(InputError):
    """A topic cannot be made or changed as asked."""

    condition = "kafka.topic-invalid"


class UnknownGroup(InputError):
    """A consumer group that does not exist."""

    condition = "kafka.group-unknown"


class GroupInUse(InputError):
    """A consumer group has members, so its offsets must not be changed."""

    condition = "kafka.group-in-use"


class KafkaUnreachable(RunError):
    """No broker answers at the address."""

    condition = "kafka.unreachable"


class KafkaFailed(RunError):
    """Kafka refused or failed a request for a reason of its own."""

    condition = "kafka.failed"


class TopicGone(RunError):
    """A topic disappeared while it was in use."""

    condition = "kafka.topic-gone"


class NotDelivered(RunError):
    """Records were not taken by Kafka."""

    condition = "kafka.not-delivered"


class RecordRefused(NotDelivered):
    """A record that the topic will never take, however often it is sent."""

    condition = "kafka.record-refused"


class CommitUnknown(RunError):
    """A transaction's commit was asked for and not answered."""

    condition = "kafka.commit-unknown"


class TakenOver(RunError):
    """Another run writes in the name of this one."""

    condition = "kafka.taken-over"


class OffsetsGone(RunError):
    """Records that a query has not read yet are no longer in Kafka."""

    condition = "kafka.offsets-gone"


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


class KinesisDenied(InputError):
    """AWS refuses the keys, or what they are used for."""

    condition = "kinesis.access-denied"


class UnknownStream(InputError):
    """A stream of Kinesis that does not exist."""

    condition = "kinesis.stream-unknown"


class KinesisUnreachable(RunError):
    """Kinesis does not answer at the address."""

    condition = "kinesis.unreachable"


class KinesisFailed(RunError):
    """Kinesis failed a request for a reason of its own, or has had no capacity for too long."""

    condition = "kinesis.failed"


class RecordsGone(RunError):
    """Records that were not read yet are no longer in the stream of Kinesis."""

    condition = "kinesis.records-gone"


class BadRecord(RunError):
    """A record that cannot be decoded, in a source with on_bad: fail."""

    condition = "record.bad"


class RedriveBusy(RunError):
    """Another redrive of the same dead letters is running, or has taken over."""

    condition = "dead.redrive-busy"


class NotRedrivable(RunError):
    """Dead letters whose records cannot be put back where they came from."""

    condition = "dead.not-redrivable"


class RegistryUnreachable(RunError):
    """The schema registry does not answer, or not as one."""

    condition = "registry.unreachable"


class RegistryRefused(RunError):
    """The schema registry answers and refuses what is asked: the password, or a schema that does not fit."""

    condition = "registry.refused"


class FeedInUse(InputError):
    """Another run of the same feed writes to the same place, and both would save their position."""

    condition = "feed.in-use"


class FeedFailed(RunError):
    """The origin of a feed can no longer be read."""

    condition = "feed.failed"
