"""A word count by createDirectStream against the same RDD program over Spark's batch reader, interleaved."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from datetime import datetime
from operator import add
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from measure import median
from pyspark import RDD
from pyspark.sql import SparkSession
from pyspark.streaming import StreamingContext

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.dstreams import KafkaUtils
from millrace.engine.session.session import close_session, open_session
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

RECORDS = int(os.environ.get("RECORDS", "400000"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PARTITIONS = 4
TOPIC = "lines"
WORDS = 11
LINE = "to be or not to be that is the question {}"


def pour(cluster: Cluster) -> None:
    """The lines."""
    topics.create(cluster, TOPIC, PARTITIONS)
    producer = Producer(cluster.config(linger_ms=50, queue_buffering_max_messages=2_000_000))
    for number in range(RECORDS):
        producer.produce(TOPIC, LINE.format(number % 1000), None, number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def counted(lines: RDD[str]) -> int:
    """How many words there are, counted one by one."""
    words = lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(add, PARTITIONS)
    return sum(number for _, number in words.collect())


def by_batch(spark: SparkSession, cluster: Cluster) -> float:
    """Spark's batch reader, as one would write it: seconds."""
    started = time.monotonic()
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    frame = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    assert counted(frame.selectExpr("CAST(value AS STRING) AS value").rdd.map(lambda row: row.value)) == WORDS * RECORDS
    return time.monotonic() - started


def by_stream(spark: SparkSession, cluster: Cluster) -> float:
    """A direct stream whose first batch has everything: seconds from the time of that batch to its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ssc = StreamingContext(spark.sparkContext, 3)
    taken: list[float] = []
    params = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "smallest"}

    def count(at: datetime, rdd: RDD[Any]) -> None:
        if not taken:
            assert counted(rdd.map(lambda record: record[1])) == WORDS * RECORDS
            taken.append(time.time() - at.timestamp())

    KafkaUtils.createDirectStream(ssc, [TOPIC], params).foreachRDD(count)
    ssc.start()
    while not taken:
        ssc.awaitTerminationOrTimeout(0.05)
    ssc.stop(stopSparkContext=False)
    return taken[0]


def main() -> None:
    """A round to warm up, then the rounds that count."""
    with tempfile.TemporaryDirectory() as folder:
        service = KafkaCluster(Path(folder) / "kafka", KafkaClusterOptions(heap="512m"))
        service.start()
        cluster = service.cluster()
        pour(cluster)
        spark = open_session("dstreams", master=None, settings={}, log=Path(folder) / "log")
        works = {"createDirectStream": by_stream, "batch reader": by_batch}
        times: dict[str, list[float]] = {name: [] for name in works}
        for number in range(ROUNDS + 1):
            for name, work in works.items():
                taken = work(spark, cluster)
                if number:
                    times[name].append(taken)
        close_session(spark)
        service.stop()
    rates = {name: RECORDS / median(taken) for name, taken in times.items()}
    for name, rate in rates.items():
        print(f"{name:20} {rate:10,.0f} records/s")
    print(f"{'ratio':20} {rates['createDirectStream'] / rates['batch reader']:10.2f}")


if __name__ == "__main__":
    main()
