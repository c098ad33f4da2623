"""Counts the words that come over a socket, each second anew.

Usage: network_word_count.py HOST PORT
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

host, port = sys.argv[1:]
sc = SparkContext(appName="NetworkWordCount")
ssc = StreamingContext(sc, 1)

lines = ssc.socketTextStream(host, int(port))
words = lines.flatMap(lambda line: line.split(" "))
pairs = words.map(lambda word: (word, 1))
word_counts = pairs.reduceByKey(lambda x, y: x + y)
word_counts.pprint()

ssc.start()
ssc.awaitTermination()
