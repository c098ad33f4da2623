"""The RDD-era API on today's Spark: streams from outside into DStreams."""
