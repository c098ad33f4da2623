"""What a run needs and does: Java, jars, child processes, Spark, functions of the user's, disks."""

from __future__ import annotations

from typing import Any

from millrace.errors.base import RunError


class JavaUnusable(RunError):
    """No Java was found, or it is too old."""

    condition = "java.unusable"


class FetchFailed(RunError):
    """Jars could not be fetched, or are not what they should be."""

    condition = "jars.fetch-failed"


class ServiceFailed(RunError):
    """A child process did not start, or ended by itself."""

    condition = "service.failed"


class SparkFailed(RunError):
    """Spark did not start, or its JVM ended by itself."""

    condition = "spark.failed"


class ClusterUnfit(RunError):
    """The executors of a cluster do not come, or cannot run a pipeline as they are."""

    condition = "spark.cluster-unfit"


class QueryFailed(RunError):
    """A query stopped because a batch of it failed."""

    condition = "query.failed"


class FunctionFailed(RunError):
    """A function of the user's raised while Spark ran it."""

    condition = "function.failed"

    def __init__(self, message: str, *, exception: str = "", **parts: Any) -> None:
        super().__init__(message, **parts)
        self.exception = exception
        """The class that it raised."""


class SinkFailed(FunctionFailed):
    """A function of the user's that writes raised; another time it may not, when what it writes to was away."""

    condition = "sink.failed"


class NotReady(RunError):
    """A run was asked for something that is there only when it has started."""

    condition = "run.not-ready"


class DiskFull(RunError):
    """There is no space left where Spark or a sink writes."""

    condition = "disk.full"
