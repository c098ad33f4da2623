"""The jobs in Bytewax."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow, Stream

JOB = os.environ["JOB"]
LIVE = JOB in ("stateless", "keyed")
BROKERS = [os.environ["BOOTSTRAP"]]


def split(batch) -> Iterable[tuple[str, int]]:
    found = Counter()
    for message in batch:
        found.update(message.value.split())
    return [(word.decode(), count) for word, count in found.items()]


def words(messages: Stream) -> Stream:
    counts = running(op.flat_map_batch("split", messages, split))
    return op.map("row", counts, lambda item: {"word": item[0], "count": item[1]})


def running(parts: Stream) -> Stream:
    def add(before: int | None, more: int) -> tuple[int, int]:
        now = (before or 0) + more
        return now, now

    return op.stateful_map("count", parts, add)


def ads(messages: Stream) -> Stream:
    rows = map(orjson.loads, Path(os.environ["CAMPAIGNS"]).read_bytes().splitlines())
    campaign_of = {row["ad_id"]: row["campaign_id"] for row in rows}

    def views(batch) -> Iterable[tuple[str, int]]:
        found = Counter()
        for message in batch:
            event = orjson.loads(message.value)
            if event["event_type"] == "view":
                found[campaign_of[event["ad_id"]], event["event_time"] // 10_000 * 10_000] += 1
        return [(f"{campaign} {window}", count) for (campaign, window), count in found.items()]

    def row(item) -> dict[str, object]:
        campaign, window = item[0].split()
        return {"campaign": campaign, "window": int(window), "count": item[1]}

    # Not its windows: they close by the time of one partition, and others are not read in step with it.
    return op.map("row", running(op.flat_map_batch("views", messages, views)), row)


def stateless(messages: Stream) -> Stream:
    records = op.map("parse", messages, lambda message: orjson.loads(message.value))
    kept = op.filter("filter", records, lambda record: record["key"] >= 0)
    return op.map("row", kept, lambda record: {**record, "even": record["key"] % 2 == 0})


def keyed(messages: Stream) -> Stream:
    counts = running(op.map("key", messages, lambda message: (message.key.decode(), 1)))
    return op.map("row", counts, lambda item: {"key": int(item[0]), "count": item[1]})


flow = Dataflow(JOB)
source = KafkaSource(BROKERS, [os.environ["SOURCE"]], batch_size=1 if LIVE else 10_000)
results = {"words": words, "ads": ads, "stateless": stateless, "keyed": keyed}[JOB](op.input("source", flow, source))
sink = KafkaSink(BROKERS, os.environ["TARGET"], add_config={"linger.ms": "0" if LIVE else "5"})
op.output("sink", op.map("encode", results, lambda row: KafkaSinkMessage(None, orjson.dumps(row))), sink)
