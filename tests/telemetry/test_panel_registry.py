"""Panels as channels: what Spark tells becomes what the page draws, and what fails is told on the panel."""

from __future__ import annotations

from millrace.errors import RunError, SourceLocation
from millrace.pipeline.model import Panel, PipelineDef, SinkDef, SourceDef, connection
from millrace.pipeline.panels import shown
from millrace.pipeline.plan import make_plan
from millrace.telemetry.channels import Channels
from millrace.telemetry.panel_registry import PanelRegistry, RegisteredPanel
from millrace.telemetry.panel_views import Frame, TopView
from millrace.telemetry.progress import METRICS

PANEL = Panel("posts", "top", (("label", "tag"), ("value", "n")))
PIPELINE = PipelineDef(
    "p", (SourceDef("posts", connection("kafka", "posts")),), (), (SinkDef("posts", connection("console")),), (PANEL,)
)


def hung(channels: Channels) -> PanelRegistry:
    """A gallery with one panel."""
    gallery = PanelRegistry(channels)
    gallery.expect(make_plan(PIPELINE, panels=True))
    picture = TopView(Frame(("label", "value"), ("text", "number"), 2))
    gallery.register(RegisteredPanel(shown((PANEL,))[0], "posts", "update", picture, 4))
    return gallery


def test_what_was_declared_is_listed_before_anything_is_seen() -> None:
    channels = Channels()
    PanelRegistry(channels).expect(make_plan(PIPELINE, panels=True))
    (listed,) = channels.slot("panels").value
    assert (listed["id"], listed["title"], listed["query"], listed["inferred"]) == (
        "posts-top",
        "posts",
        "posts",
        False,
    )
    assert listed["options"] == {"label": "tag", "value": "n", "limit": 10}
    assert channels.slot("panel:posts-top").value["rows"] == []


def test_rows_of_a_batch_are_drawn() -> None:
    channels = Channels()
    gallery = hung(channels)
    before = channels.slot("panel:posts-top").version
    told = {"posts-top": [{"c0": "a", "c1": 3}, {"c0": "<b>", "c1": float("inf")}], "#posts-top": 7}
    gallery.observe({METRICS: told})
    value = channels.slot("panel:posts-top").value
    assert value["rows"] == [["<b>", None], ["a", 3]]
    assert (value["columns"], value["types"], value["error"]) == (["label", "value"], ["text", "number"], None)
    gallery.observe({METRICS: {"posts-top": None, "#posts-top": 0}})
    gallery.observe({"another": {}})
    assert channels.slot("panel:posts-top").version == before + 1


def test_a_failure_stands_beside_what_was_shown() -> None:
    channels = Channels()
    gallery = hung(channels)
    gallery.observe({METRICS: {"posts-top": [{"c0": "a", "c1": 3}], "#posts-top": 1}})
    gallery.fail(shown((PANEL,)), RunError("it broke", why="because", place=SourceLocation("p.yaml", 7)))
    value = channels.slot("panel:posts-top").value
    assert value["rows"] == [["a", 3]]
    assert value["error"] == {"message": "it broke", "why": "because", "hint": None, "where": "p.yaml:7"}
    assert channels.slot("panels").value[0]["error"]


def test_what_cannot_be_drawn_is_told_on_its_panel() -> None:
    channels = Channels()
    gallery = hung(channels)
    gallery.observe({METRICS: {"posts-top": [{"c0": ["no", "label"], "c1": 3}], "#posts-top": 1}})
    assert "cannot be drawn" in channels.slot("panel:posts-top").value["error"]["message"]
