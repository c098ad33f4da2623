"""Counts the words of each file that is moved into a folder: textFileStream.

Usage: file_stream.py FOLDER
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

sc = SparkContext(appName="FileStream")
ssc = StreamingContext(sc, 1)

lines = ssc.textFileStream(sys.argv[1])
counts = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).reduceByKey(lambda x, y: x + y)
counts.pprint()

ssc.start()
ssc.awaitTermination()
