"""The jobs as loops in Python: nothing is kept, nothing is safe, nothing is in the way."""

import os
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

import orjson
from confluent_kafka import Consumer, Message, Producer

JOB, TARGET = os.environ["JOB"], os.environ["TARGET"]
address = {"bootstrap.servers": os.environ["BOOTSTRAP"]}
live = {"fetch.wait.max.ms": 5} if JOB in ("stateless", "keyed") else {}
consumer = Consumer(
    {**address, **live, "group.id": "by-hand", "auto.offset.reset": "earliest", "enable.auto.commit": False}
)
consumer.subscribe([os.environ["SOURCE"]])
producer = Producer({**address, "linger.ms": 0 if live else 5, "queue.buffering.max.messages": 1_000_000})
counts: Counter[Hashable] = Counter()
with Path(os.environ["CAMPAIGNS"]).open("rb") as lines:
    campaign_of = {row["ad_id"]: row["campaign_id"] for row in map(orjson.loads, lines)}


def words(batch: list[Message]) -> Counter[Hashable]:
    found: Counter[Hashable] = Counter()
    for message in batch:
        found.update(message.value().split())
    return found


def ads(batch: list[Message]) -> Counter[Hashable]:
    found: Counter[Hashable] = Counter()
    for message in batch:
        event = orjson.loads(message.value())
        if event["event_type"] == "view":
            found[campaign_of[event["ad_id"]], event["event_time"] // 10_000 * 10_000] += 1
    return found


def keyed(batch: list[Message]) -> Counter[Hashable]:
    return Counter(orjson.loads(message.value())["key"] for message in batch)


def row(key: Hashable, count: int) -> dict[str, object]:
    if JOB == "words":
        return {"word": key.decode(), "count": count}
    if JOB == "ads":
        return {"campaign": key[0], "window": key[1], "count": count}
    return {"key": key, "count": count}


def send(rows: list[dict[str, object]]) -> None:
    for one in rows:
        while True:
            try:
                producer.produce(TARGET, orjson.dumps(one))
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)


def passed_on(batch: list[Message]) -> list[dict[str, object]]:
    records = (orjson.loads(message.value()) for message in batch)
    return [{**record, "even": record["key"] % 2 == 0} for record in records if record["key"] >= 0]


count_in = {"words": words, "ads": ads, "state": keyed, "keyed": keyed}
changed: set[Hashable] = set()
while True:
    batch = [message for message in consumer.consume(1 if live else 10_000, 0.1) if not message.error()]
    if JOB == "stateless":
        send(passed_on(batch))
        continue
    found = count_in[JOB](batch)
    counts.update(found)
    changed.update(found)
    if live or not batch:
        send([row(key, counts[key]) for key in changed])
        changed.clear()
