"""The query of pipeline.py over the files that are there now, by plain Spark: a table is only a function."""

import sys

from pyspark.sql import SparkSession

from pipeline import SCHEMA, levels

folder = sys.argv[1] if len(sys.argv) > 1 else "examples/json-logs/data"

spark = SparkSession.builder.getOrCreate()
levels(spark.read.schema(SCHEMA).json(folder)).show(truncate=False)
