"""Lines sent with times of our own: each row of a CSV file says how many seconds after the start it happened."""

import argparse
import csv
import os
import time
from pathlib import Path

from confluent_kafka import Producer

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("file", type=Path)
options.add_argument("--topic", default="timed-lines")
options.add_argument("--kafka", default=os.environ.get("MILLRACE_KAFKA", "127.0.0.1:9092"))
options.add_argument("--start", type=int, help="seconds since 1970; if left out, the last full hour but one")
given = options.parse_args()

start = given.start or (int(time.time()) // 3600 - 1) * 3600
producer = Producer({"bootstrap.servers": given.kafka, "acks": "all"})
with given.file.open() as file:
    for seconds, line in csv.reader(file):
        producer.produce(given.topic, line, timestamp=(start + int(seconds)) * 1000)
if producer.flush(30):
    raise SystemExit(f"Kafka at {given.kafka} did not take every line; is the topic {given.topic!r} there?")
