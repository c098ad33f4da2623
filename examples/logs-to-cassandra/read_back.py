"""The log lines of one application since a time, read back by Spark: Cassandra is asked for its partition alone."""

import sys

from pyspark.sql import SparkSession

from millrace.clients.cassandra import Cassandra
from millrace.connectors.cassandra import read_table

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9042"
table = sys.argv[2] if len(sys.argv) > 2 else "shop.logs"

spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
logs = read_table(spark, table, Cassandra.at(address))
payments = logs.where("application = 'payments' AND time >= timestamp'2026-05-04 08:00:02'")
payments.select("time", "level", "message").orderBy("time", "message").show(truncate=False)
