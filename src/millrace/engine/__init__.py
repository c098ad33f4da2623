"""Runs pipelines on Spark: the only room that makes a SparkSession."""
