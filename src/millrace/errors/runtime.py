"""What a run needs and does: Java, jars, child processes, Spark, functions of the user's, disks."""

from typing import Any as _Any

from millrace.errors.base import RunError


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
