"""Counts the words of a topic as a member of a consumer group: KafkaUtils.createStream.

Usage: kafka_receiver.py BROKERS GROUP TOPIC
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from millrace.dstreams import KafkaUtils

brokers, group, topic = sys.argv[1:]
sc = SparkContext(appName="KafkaReceiver")
ssc = StreamingContext(sc, 1)

stream = KafkaUtils.createStream(ssc, brokers, group, {topic: 1}, {"auto.offset.reset": "smallest"})
lines = stream.map(lambda message: message[1])
counts = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).reduceByKey(lambda x, y: x + y)
counts.pprint()

ssc.start()
ssc.awaitTermination()
