"""Runs pipelines on Spark: the only package that starts a SparkSession."""
