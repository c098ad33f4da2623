"""The log lines of one application since a time, read back by Spark: Cassandra is asked for its partition alone."""

import sys

from pyspark.sql import SparkSession

from millrace.clients.cassandra import Cassandra
from millrace.connectors.cassandra import read_table

address, table = (*sys.argv[1:], "127.0.0.1:9042", "shop.logs")[:2]

spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
logs = read_table(spark, table, Cassandra.at(address))
payments = logs.where("application = 'payments' AND time >= timestamp'2026-05-04 08:00:02'")
payments.select("time", "level", "message").orderBy("time", "message").show(truncate=False)
