"""Counts the words of the last five seconds, each second: window and reduceByKeyAndWindow.

Usage: windowed_word_count.py HOST PORT CHECKPOINT
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

host, port, checkpoint = sys.argv[1:]
sc = SparkContext(appName="WindowedWordCount")
ssc = StreamingContext(sc, 1)
ssc.checkpoint(checkpoint)  # the inverse function asks for it

lines = ssc.socketTextStream(host, int(port))
lines.window(5, 1).count().map(lambda count: f"{count} lines in the window").pprint()

pairs = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1))
# What enters the window is added and what leaves it is taken away; a word that is gone is forgotten.
counts = pairs.reduceByKeyAndWindow(lambda x, y: x + y, lambda x, y: x - y, 5, 1, filterFunc=lambda pair: pair[1] > 0)
counts.pprint()

ssc.start()
ssc.awaitTermination()
