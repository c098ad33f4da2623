"""Counts the words of a topic, read straight from the brokers: KafkaUtils.createDirectStream.

Usage: kafka_direct.py BROKERS TOPIC
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from millrace.dstreams import KafkaUtils

brokers, topic = sys.argv[1:]
sc = SparkContext(appName="KafkaDirect")
ssc = StreamingContext(sc, 1)

stream = KafkaUtils.createDirectStream(ssc, [topic], {"metadata.broker.list": brokers, "auto.offset.reset": "smallest"})


def print_offsets(rdd):
    for one in rdd.offsetRanges():
        if one.untilOffset > one.fromOffset:
            print(f"{one.topic} {one.partition}: {one.fromOffset} to {one.untilOffset}")


stream.foreachRDD(print_offsets)
counts = (
    stream.map(lambda message: message[1])
    .flatMap(lambda line: line.lower().split(" "))
    .map(lambda word: (word.strip(",.;:?!'"), 1))
    .reduceByKey(lambda x, y: x + y)
    .transform(lambda rdd: rdd.sortBy(lambda pair: (-pair[1], pair[0])))
)
counts.pprint()

ssc.start()
ssc.awaitTermination()
