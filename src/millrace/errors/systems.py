"""Errors of a run and of the systems that it uses.

- Kafka, Cassandra, Kinesis, schema registry, feeds and dead letters
- Java, jars, child processes, Spark, functions of the user's, disks
"""

from typing import Any as _Any

from millrace.errors.base import InputError, RunError


class DataDirInUse(InputError, condition="kafka.data-in-use"):
    """Another process uses this data directory."""


class DataDirMismatch(InputError, condition="kafka.data-mismatch"):
    """The data directory belongs to a cluster of another shape, or is not a broker's at all."""


class NoCluster(InputError, condition="kafka.none"):
    """No cluster was named and none of ours runs here."""


class AccessDenied(InputError, condition="kafka.access-denied"):
    """The cluster refuses the credentials, the certificate, or what they are used for."""


class UnknownTopic(InputError, condition="kafka.topic-unknown"):
    """A topic that does not exist, or a partition that it does not have."""


class InvalidTopic(InputError, condition="kafka.topic-invalid"):
    """A topic cannot be made or changed as asked."""


class UnknownGroup(InputError, condition="kafka.group-unknown"):
    """A consumer group that does not exist."""


class GroupInUse(InputError, condition="kafka.group-in-use"):
    """A consumer group has members, so its offsets must not be changed."""


class KafkaUnreachable(RunError, condition="kafka.unreachable"):
    """No broker answers at the address."""


class KafkaFailed(RunError, condition="kafka.failed"):
    """Kafka refused or failed a request for a reason of its own."""


class TopicGone(RunError, condition="kafka.topic-gone"):
    """A topic disappeared while it was in use."""


class NotDelivered(RunError, condition="kafka.not-delivered"):
    """Records were not taken by Kafka."""


class RecordRefused(NotDelivered, condition="kafka.record-refused"):
    """A record that the topic will never take, however often it is sent."""


class CommitUnknown(RunError, condition="kafka.commit-unknown"):
    """A transaction's commit was asked for and not answered."""


class TakenOver(RunError, condition="kafka.taken-over"):
    """Another run writes in the name of this one."""


class OffsetsGone(RunError, condition="kafka.offsets-gone"):
    """Records that a query has not read yet are no longer in Kafka."""


class NoCassandra(InputError, condition="cassandra.none"):
    """No Cassandra was named and none of ours runs here."""


class CassandraDenied(InputError, condition="cassandra.access-denied"):
    """Cassandra refuses the user, the certificate, or what is asked for."""


class CassandraInUse(InputError, condition="cassandra.data-in-use"):
    """Another process uses this data folder of a Cassandra."""


class CassandraMismatch(InputError, condition="cassandra.data-mismatch"):
    """The data folder is not one of a Cassandra of ours."""


class UnknownTable(InputError, condition="cassandra.table-unknown"):
    """A keyspace or a table that does not exist."""


class InvalidTable(InputError, condition="cassandra.table-invalid"):
    """A table of Cassandra and the rows for it do not fit: a column, a type or the key."""


class InvalidCql(InputError, condition="cassandra.cql-invalid"):
    """A statement that Cassandra cannot parse or carry out as it is."""


class CassandraUnreachable(RunError, condition="cassandra.unreachable"):
    """No node of Cassandra answers at the address."""


class CassandraFailed(RunError, condition="cassandra.failed"):
    """Cassandra failed a request for a reason of its own."""


class RowRefused(RunError, condition="cassandra.row-refused"):
    """A row that a table of Cassandra will never take, however often it is sent."""


class KinesisDenied(InputError, condition="kinesis.access-denied"):
    """AWS refuses the keys, or what they are used for."""


class UnknownStream(InputError, condition="kinesis.stream-unknown"):
    """A stream of Kinesis that does not exist."""


class KinesisUnreachable(RunError, condition="kinesis.unreachable"):
    """Kinesis does not answer at the address."""


class KinesisFailed(RunError, condition="kinesis.failed"):
    """Kinesis failed a request for a reason of its own, or has had no capacity for too long."""


class RecordsGone(RunError, condition="kinesis.records-gone"):
    """Records that were not read yet are no longer in the stream of Kinesis."""


class BadRecord(RunError, condition="record.bad"):
    """A record that cannot be decoded, in a source with on_bad: fail."""


class RedriveBusy(RunError, condition="dead.redrive-busy"):
    """Another redrive of the same dead letters is running, or has taken over."""


class NotRedrivable(RunError, condition="dead.not-redrivable"):
    """Dead letters whose records cannot be put back where they came from."""


class RegistryUnreachable(RunError, condition="registry.unreachable"):
    """The schema registry does not answer, or not as one."""


class RegistryRefused(RunError, condition="registry.refused"):
    """The schema registry answers and refuses what is asked: the password, or a schema that does not fit."""


class FeedInUse(InputError, condition="feed.in-use"):
    """Another run of the same feed writes to the same place, and both would save their position."""


class FeedFailed(RunError, condition="feed.failed"):
    """The origin of a feed can no longer be read."""


class JavaUnusable(RunError, condition="java.unusable"):
    """No Java was found, or it is too old."""


class FetchFailed(RunError, condition="jars.fetch-failed"):
    """Jars could not be fetched, or are not what they should be."""


class ServiceFailed(RunError, condition="service.failed"):
    """A child process did not start, or ended by itself."""


class SparkFailed(RunError, condition="spark.failed"):
    """Spark did not start, or its JVM ended by itself."""


class ClusterUnfit(RunError, condition="spark.cluster-unfit"):
    """The executors of a cluster do not come, or cannot run a pipeline as they are."""


class QueryFailed(RunError, condition="query.failed"):
    """A query stopped because a batch of it failed."""


class FunctionFailed(RunError, condition="function.failed"):
    """A function of the user's raised while Spark ran it."""

    def __init__(self, message: str, *, exception: str = "", **parts: _Any) -> None:
        super().__init__(message, **parts)
        self.exception = exception
        """The class that it raised."""


class SinkFailed(FunctionFailed, condition="sink.failed"):
    """A function of the user's that writes raised; another time it may not, when what it writes to was away."""


class NotReady(RunError, condition="run.not-ready"):
    """A run was asked for something that is there only when it has started."""


class DiskFull(RunError, condition="disk.full"):
    """There is no space left where Spark or a sink writes."""
