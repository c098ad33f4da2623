"""The RDD-era API on today's Spark: streams from outside into DStreams."""

from millrace.dstreams.kinesis import InitialPositionInStream, KinesisUtils, MetricsLevel

__all__ = ["InitialPositionInStream", "KinesisUtils", "MetricsLevel"]
