"""The jobs in Pathway."""

import os

import pathway as pw

JOB = os.environ["JOB"]
LIVE = JOB in ("stateless", "keyed")
SETTINGS = {
    "bootstrap.servers": os.environ["BOOTSTRAP"],
    "group.id": f"pathway-{os.environ['SOURCE']}",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}
READ = {"topic": os.environ["SOURCE"], "autocommit_duration_ms": 1 if LIVE else 100}


class Event(pw.Schema):
    ad_id: str
    event_type: str
    event_time: int


class Campaign(pw.Schema):
    ad_id: str = pw.column_definition(primary_key=True)
    campaign_id: str


class Record(pw.Schema):
    key: int
    at: int


def words() -> pw.Table:
    lines = pw.io.kafka.read(SETTINGS, format="plaintext", **READ)
    split = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.data)).flatten(pw.this.word)
    return split.groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())


def ads() -> pw.Table:
    events = pw.io.kafka.read(SETTINGS, schema=Event, format="json", **READ)
    views = events.filter(pw.this.event_type == "view")
    placed = views.select(pw.this.ad_id, window=pw.this.event_time // 10_000 * 10_000)
    # Counted by ad first: a join would keep every view.
    by_ad = placed.groupby(pw.this.ad_id, pw.this.window).reduce(
        pw.this.ad_id, pw.this.window, count=pw.reducers.count()
    )
    campaigns = pw.io.jsonlines.read(os.environ["CAMPAIGNS"], schema=Campaign, mode="static")
    joined = by_ad.join(campaigns, by_ad.ad_id == campaigns.ad_id).select(
        campaign=campaigns.campaign_id, window=by_ad.window, count=by_ad.count
    )
    return joined.groupby(pw.this.campaign, pw.this.window).reduce(
        pw.this.campaign, pw.this.window, count=pw.reducers.sum(pw.this.count)
    )


def keyed() -> pw.Table:
    records = pw.io.kafka.read(SETTINGS, schema=Record, format="json", **READ)
    return records.groupby(pw.this.key).reduce(pw.this.key, count=pw.reducers.count())


def stateless() -> pw.Table:
    records = pw.io.kafka.read(SETTINGS, schema=Record, format="json", **READ)
    return records.filter(pw.this.key >= 0).select(pw.this.key, pw.this.at, even=pw.this.key % 2 == 0)


results = {"words": words, "ads": ads, "keyed": keyed, "stateless": stateless}[JOB]()
pw.io.kafka.write(results, SETTINGS, os.environ["TARGET"], format="json")
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
