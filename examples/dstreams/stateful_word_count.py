"""Counts the words that come over a socket, since the beginning: updateStateByKey.

Usage: stateful_word_count.py HOST PORT CHECKPOINT
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext


def update(new_values, running_count):
    return sum(new_values) + (running_count or 0)


host, port, checkpoint = sys.argv[1:]
sc = SparkContext(appName="StatefulWordCount")
ssc = StreamingContext(sc, 1)
ssc.checkpoint(checkpoint)

lines = ssc.socketTextStream(host, int(port))
initial = sc.parallelize([("hello", 1), ("world", 1)])
running_counts = (
    lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).updateStateByKey(update, initialRDD=initial)
)
running_counts.pprint()

ssc.start()
ssc.awaitTermination()
