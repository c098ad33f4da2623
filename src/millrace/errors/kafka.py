"""Kafka: our brokers' folders, the cluster, its topics and groups, and what is written to it."""

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
