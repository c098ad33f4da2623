"""Writes the word counts of each batch into a folder of its own: saveAsTextFiles.

Usage: save_as_text_files.py HOST PORT PREFIX
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

host, port, prefix = sys.argv[1:]
sc = SparkContext(appName="SaveAsTextFiles")
ssc = StreamingContext(sc, 1)

lines = ssc.socketTextStream(host, int(port))
counts = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).reduceByKey(lambda x, y: x + y)
counts.saveAsTextFiles(prefix, "txt")

ssc.start()
ssc.awaitTermination()
