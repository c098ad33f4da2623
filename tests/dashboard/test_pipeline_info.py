"""A pipeline as the page tells it."""

from __future__ import annotations

import orjson

import millrace as mr
from millrace.connectors.base.registry import topics_read
from millrace.dashboard.pipeline_info import masked, pipeline_info, program_info
from millrace.engine.replay.generations import pipeline_of
from millrace.pipeline.plan import make_plan
from millrace.telemetry.topology import Edge, topology_of

SECRET = "hunter2"


def trending() -> mr.Pipeline:
    pipeline = mr.Pipeline("trending")
    pipeline.source("posts", mr.kafka("posts", schema="at timestamp, tag string", config={"sasl.password": SECRET}))

    @pipeline.table(watermark=("at", "10 seconds"))
    def tags(posts):  # type: ignore[no-untyped-def]
        return posts.select("at", "tag")

    pipeline.sql("popular", "SELECT tag, count(*) AS count FROM tags GROUP BY tag")
    pipeline.sink("popular", mr.kafka("popular", key="tag"), mode="update")
    pipeline.sink("popular", mr.memory(), mode="update")
    pipeline.panel("popular", mr.top(label="tag", value="count"))
    return pipeline


def test_all_of_it() -> None:
    plan = make_plan(trending().model(), panels=True)
    told = pipeline_info(plan, master=None, spark={"spark.x": "1", "spark.y.password": SECRET}, kafka="h:1")
    assert (told["name"], told["memory"], told["topics"]) == ("trending", ["popular"], ["posts", "popular"])
    (source,) = told["sources"]
    assert (source["connector"], source["detail"]) == ("kafka", "posts")
    assert source["file"].endswith("test_pipeline_info.py")
    tags, popular = told["tables"]
    assert "def tags(posts)" in tags["source"]
    assert (tags["watermark"], popular["reads"]) == ("at, 10.0 s", ["tags"])
    assert popular["sql"].startswith("SELECT")
    kafka, memory = told["sinks"]
    assert (told["generation"], kafka["to"], memory["to"]) == (1, "topic popular", "the memory table popular")
    assert kafka["guarantee"].startswith("exactly once")
    assert kafka["query"] == memory["query"] == "popular-update"
    assert told["queries"][0]["sinks"] == [0, 1]
    assert [one["id"] for one in told["panels"]] == ["popular-top"]
    settings = {one["name"]: one["value"] for one in told["settings"]}
    assert (settings["spark.x"], settings["spark.y.password"]) == ("1", "***")
    assert settings["spark.master"] == "local[*]"
    assert told["versions"]["kafka"] == "h:1"
    assert SECRET not in orjson.dumps(told).decode()


def test_secrets_are_masked_wherever_they_are() -> None:
    assert masked("sasl.password", SECRET) == "***"
    assert masked("url", f"https://me:{SECRET}@host/x") == "***"
    assert masked("config", {"a": 1, "api_key": SECRET}) == {"a": 1, "api_key": "***"}
    assert masked("config", (("a", "b"), ("token", SECRET))) == {"a": "b", "token": "***"}
    assert masked("token", (("a", SECRET),)) == {"a": "***"}
    assert masked("paths", ("a", "b")) == ["a", "b"]


def test_a_program_that_is_not_ours() -> None:
    told = program_info("job.py", "jobs/job.py", master="local[2]", spark={}, kafka=None)
    assert (told["name"], told["queries"], told["settings"][0]["value"]) == ("job.py", [], "local[2]")
    assert (told["generation"], told["generations"]) == (None, [])
    plan = make_plan(trending().model())
    assert told.keys() == pipeline_info(plan, master=None, spark={}, kafka=None).keys()


def test_a_generation_is_told_by_the_names_that_it_writes() -> None:
    plan = make_plan(pipeline_of(trending().model(), 2))
    told = pipeline_info(plan, master=None, spark={}, kafka=None, generation=2)
    assert (told["name"], told["generation"], told["topics"]) == ("trending@2", 2, ["posts", "popular.g2"])
    assert [one["to"] for one in told["sinks"]] == ["topic popular.g2", "the memory table popular"]


def test_its_outline() -> None:
    model = trending().model()
    topology = topology_of(make_plan(model), topics_read(model))
    assert topology.edges == (
        Edge("posts", "tags"),
        Edge("tags", "popular"),
        Edge("popular", "sink:0", "popular-update", "popular"),
        Edge("popular", "sink:1", "popular-update"),
    )
    (query,) = topology.queries
    assert (query.mode, query.watermarked, query.sources, query.lasting) == ("update", True, ("posts",), True)
    assert topology.read_by("popular-update") == ("posts",)
    assert not topology_of(make_plan(model, once=True), {}).queries[0].lasting
