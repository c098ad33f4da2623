"""A program of the era: counts words across restarts, and keeps the counts of the last batch in a file."""

import json
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from millrace.dstreams import KafkaUtils

checkpoint, out, topic, servers = sys.argv[1:5]


def write(_, rdd):
    counts = dict(rdd.collect())
    draft = Path(f"{out}.draft")
    draft.write_text(json.dumps(counts))
    draft.replace(out)


def make():
    context = SparkContext(conf=SparkConf().setAppName("stateful").setMaster("local[2]"))
    ssc = StreamingContext(context, 0.5)
    params = {"bootstrap.servers": servers, "auto.offset.reset": "smallest"}
    stream = KafkaUtils.createDirectStream(ssc, [topic], params)
    words = stream.map(lambda record: (record[1], 1))
    words.updateStateByKey(lambda new, old: (old or 0) + sum(new), 2).foreachRDD(write)
    return ssc


ssc = StreamingContext.getOrCreate(checkpoint, make)
ssc.start()
ssc.awaitTermination()
