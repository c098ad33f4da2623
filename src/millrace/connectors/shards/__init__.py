"""Streams of Kinesis on Spark: read through its Python Data Source API, written by tasks."""
