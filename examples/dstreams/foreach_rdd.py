"""Adds the word counts of each batch to a database: foreachRDD, with a connection for each partition.

Usage: foreach_rdd.py HOST PORT DATABASE
"""

import sqlite3
import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

host, port, database = sys.argv[1:]
sc = SparkContext(appName="ForeachRDD")
ssc = StreamingContext(sc, 1)


def send_partition(rows):
    # Made where the rows are: a connection cannot travel from the driver to a worker.
    with sqlite3.connect(database, timeout=60) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INT)")
        for row in rows:
            connection.execute(
                "INSERT INTO counts VALUES (?, ?) ON CONFLICT (word) DO UPDATE SET count = count + excluded.count", row
            )


lines = ssc.socketTextStream(host, int(port))
counts = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).reduceByKey(lambda x, y: x + y)
counts.foreachRDD(lambda rdd: rdd.foreachPartition(send_partition))

ssc.start()
ssc.awaitTermination()
