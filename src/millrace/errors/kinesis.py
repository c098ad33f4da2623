"""Amazon Kinesis."""

from __future__ import annotations

from millrace.errors.base import InputError, RunError


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
