"""The pipeline that the sample of the dashboard pretends to run: what it is made of, its topics and its panels."""

from __future__ import annotations

from typing import Any

from millrace import __version__
from millrace.pipeline.model import Panel
from millrace.pipeline.panels import RunPanel
from millrace.telemetry.panel_registry import RegisteredPanel
from millrace.telemetry.panel_views import Frame, HeatView, NumberView, PanelView, SeriesView, TableView, TopView
from millrace.telemetry.topology import Edge, ExpectedQuery, Topology

OUTLINE = Topology(
    (
        ExpectedQuery("popular-update", "popular", "update", watermarked=True, sources=("posts",)),
        ExpectedQuery("languages", "languages", "append", watermarked=True, sources=("posts",)),
        ExpectedQuery("spikes", "spikes", "append", watermarked=True, sources=("posts", "authors")),
    ),
    (
        Edge("posts", "hashtags"),
        Edge("hashtags", "popular"),
        Edge("posts", "languages"),
        Edge("hashtags", "spikes"),
        Edge("authors", "spikes"),
        Edge("popular", "sink:0", "popular-update", "popular"),
        Edge("popular", "sink:1", "popular-update"),
        Edge("languages", "sink:2", "languages"),
        Edge("spikes", "sink:3", "spikes", "spikes"),
    ),
    {"posts": ("posts",), "authors": ("authors",)},
)
TOPICS = {"posts": 4, "authors": 1, "popular": 2, "spikes": 2, "posts.dead": 4, "__consumer_offsets": 3}
_TOP = Frame(("label", "value"), ("text", "number"), 10)
_SERIES = Frame(("time", "key", "value"), ("time", "text", "number"))
_HEAT = Frame(("x", "y", "value"), ("time", "text", "number"))
_NUMBER = Frame(("value",), ("number",), 1)
_TABLE = Frame(("at", "author", "text", "score"), ("time", "text", "text", "number"), 100)


def _hung(id_: str, table: str, query: str, picture: PanelView, width: int, **options: Any) -> RegisteredPanel:
    kind = id_.rpartition("-")[2]
    shown = RunPanel(id_, Panel(table, kind, tuple(options.items())), inferred=id_ == "spikes-table")
    return RegisteredPanel(shown, query, "update" if "update" in query else "append", picture, width)


PANELS = [
    _hung("popular-top", "popular", "popular-update", TopView(_TOP), 4, title="Trending", label="tag", value="count"),
    _hung(
        "languages-series",
        "languages",
        "languages",
        SeriesView(_SERIES),
        4,
        title="Posts a second",
        time="at",
        value="posts",
        key="lang",
    ),
    _hung(
        "popular-heat",
        "popular",
        "popular-update",
        HeatView(_HEAT),
        3,
        title="Tags over time",
        x="window",
        y="tag",
        value="count",
    ),
    _hung(
        "languages-number", "languages", "languages", NumberView(_NUMBER), 3, title="Posts", value="posts", unit="posts"
    ),
    _hung("spikes-table", "spikes", "spikes", TableView(_TABLE), 4),
]
HASHTAGS_SQL = r"SELECT at, explode(regexp_extract_all(text, '#(\\w+)')) AS tag FROM posts"


def described() -> dict[str, Any]:
    """The pipeline, as `/api/pipeline` tells it."""
    at = {"file": "examples/trending/pipeline.py"}
    return {
        "name": "trending",
        "file": at["file"],
        "version": __version__,
        "generation": 1,
        "generations": [],
        "sources": [
            {"name": "posts", "connector": "kafka", "detail": "posts", **at, "line": 6, "watermark": None},
            {"name": "authors", "connector": "kafka", "detail": "authors", **at, "line": 7, "watermark": "at 1m"},
        ],
        "tables": [
            {"name": "hashtags", "reads": ["posts"], "sql": HASHTAGS_SQL, **at, "line": 9, "watermark": "at 10s"},
            {
                "name": "popular",
                "reads": ["hashtags"],
                "sql": None,
                "source": "@trending.table\ndef popular(hashtags):\n"
                '    return hashtags.groupBy(F.window("at", "1 minute", "10 seconds"), "tag").count()',
                **at,
                "line": 14,
                "watermark": None,
            },
            {
                "name": "languages",
                "reads": ["posts"],
                "sql": "SELECT window(at, '1 second') AS at, lang, count(*) AS posts FROM posts GROUP BY 1, 2",
                **at,
                "line": 19,
                "watermark": "at 5s",
            },
            {
                "name": "spikes",
                "reads": ["hashtags", "authors"],
                "sql": "SELECT * FROM hashtags JOIN authors USING (author)",
                **at,
                "line": 25,
                "watermark": None,
            },
        ],
        "sinks": [
            {
                "table": "popular",
                "connector": "kafka",
                "detail": "popular",
                "to": "topic popular",
                "mode": "update",
                "query": "popular-update",
                "guarantee": "exactly once, for readers with isolation.level=read_committed",
                **at,
                "line": 30,
            },
            {
                "table": "popular",
                "connector": "memory",
                "detail": "popular",
                "to": "the memory table popular",
                "mode": "update",
                "query": "popular-update",
                "guarantee": "none beyond the run",
                **at,
                "line": 31,
            },
            {
                "table": "languages",
                "connector": "files",
                "detail": "out/languages",
                "to": "the folder /home/me/out/languages",
                "mode": "append",
                "query": "languages",
                "guarantee": "exactly once",
                **at,
                "line": 32,
            },
            {
                "table": "spikes",
                "connector": "kafka",
                "detail": "spikes",
                "to": "topic spikes",
                "mode": "append",
                "query": "spikes",
                "guarantee": "exactly once, for readers with isolation.level=read_committed",
                **at,
                "line": 33,
            },
        ],
        "queries": [
            {"name": "popular-update", "table": "popular", "mode": "update", "trigger": "fastest", "sinks": [0, 1]},
            {"name": "languages", "table": "languages", "mode": "append", "trigger": "1 s", "sinks": [2]},
            {"name": "spikes", "table": "spikes", "mode": "append", "trigger": "fastest", "sinks": [3]},
        ],
        "panels": [
            {
                "id": one.shown.id,
                "table": one.shown.panel.table,
                "kind": one.shown.panel.kind,
                "title": one.shown.title,
                "options": one.shown.given,
                "inferred": one.shown.inferred,
            }
            for one in PANELS
        ],
        "memory": ["popular"],
        "topics": ["posts", "authors", "popular", "spikes", "posts.dead"],
        "settings": [
            {"name": "spark.master", "value": "local[*]", "why": "every core here"},
            {"name": "spark.sql.shuffle.partitions", "value": "2", "why": "one for each core"},
            {"name": "kafka.sasl.password", "value": "***", "why": "given by --kafka-config"},
        ],
        "versions": {"millrace": __version__, "spark": "4.3.0", "python": "3.12.1", "kafka": "127.0.0.1:9092"},
    }
