"""The jobs in Quix Streams, in two processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

from quixstreams import Application, State

JOB, INSTANCE = os.environ["JOB"], os.environ.get("INSTANCE")
LIVE = JOB in ("stateless", "keyed")


def application() -> Application:
    return Application(
        broker_address=os.environ["BOOTSTRAP"],
        consumer_group=f"quix-{os.environ['SOURCE']}",
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=f"{os.environ['FOLDER']}/state-{INSTANCE}",
        consumer_extra_config={"isolation.level": "read_committed", "fetch.wait.max.ms": 5 if LIVE else 500},
        producer_extra_config={"linger.ms": 0 if LIVE else 50},
        consumer_poll_timeout=0.1,
        processing_guarantee="exactly-once" if JOB == "once" else "at-least-once",
        loglevel="WARNING",
    )


def counted(name: str):
    def count(value, state: State):
        number = state.get("count", 0) + 1
        state.set("count", number)
        return {name: value[name] if isinstance(value, dict) else value, "count": number}

    return count


def words(app: Application, target) -> None:
    text = {"value_deserializer": "string", "value_serializer": "string"}
    lines = app.dataframe(app.topic(os.environ["SOURCE"], value_deserializer="string"))
    split = lines.apply(str.split, expand=True).group_by(lambda word: word, name="word", **text)
    split.apply(counted("word"), stateful=True).to_topic(target)


def ads(app: Application, target) -> None:
    rows = map(json.loads, Path(os.environ["CAMPAIGNS"]).read_text().splitlines())
    campaign_of = {row["ad_id"]: row["campaign_id"] for row in rows}
    source = app.topic(os.environ["SOURCE"], timestamp_extractor=lambda event, *_: event["event_time"])
    views = app.dataframe(source).filter(lambda event: event["event_type"] == "view")
    named = views.apply(lambda event: {"campaign": campaign_of[event["ad_id"]]}).group_by("campaign")
    # Partitions are not read in step, so a window that was closed by one could not take what comes from another.
    counts = named.tumbling_window(10_000, grace_ms=86_400_000).count().current()

    def row(window, key, *_):
        return {"campaign": key, "window": window["start"], "count": window["value"]}

    counts.apply(row, metadata=True).to_topic(target)


def once(app: Application, _) -> None:
    raw = {"value_deserializer": "bytes", "key_deserializer": "bytes"}
    target = app.topic(os.environ["TARGET"], value_serializer="bytes", key_serializer="bytes")
    app.dataframe(app.topic(os.environ["SOURCE"], **raw)).to_topic(target)


def stateless(app: Application, target) -> None:
    records = app.dataframe(app.topic(os.environ["SOURCE"])).filter(lambda record: record["key"] >= 0)
    records.apply(lambda record: {**record, "even": record["key"] % 2 == 0}).to_topic(target)


def keyed(app: Application, target) -> None:
    app.dataframe(app.topic(os.environ["SOURCE"])).apply(counted("key"), stateful=True).to_topic(target)


def main() -> None:
    app = application()
    jobs = {"words": words, "ads": ads, "once": once, "stateless": stateless, "keyed": keyed}
    jobs[JOB](app, app.topic(os.environ["TARGET"], value_serializer="json"))
    app.run()


if INSTANCE:
    main()
else:
    started = [subprocess.Popen([sys.executable, __file__], env={**os.environ, "INSTANCE": str(n)}) for n in range(2)]
    sys.exit(max(one.wait() for one in started))
