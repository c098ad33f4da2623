"""Panels: what each kind shows of real batches, what is told instead of failing, and what a run has of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

import millrace as mr
from conftest import RunPipeline
from millrace.engine.deep_check import deep_problems
from millrace.engine.queries.panels import columns_of
from millrace.pipeline.plan import make_plan
from millrace.telemetry.channels import Channels

SCHEMA = (
    "room string, n bigint, heat double, price decimal(10,2), raw binary, tags array<string>, ok boolean, at timestamp"
)
WINDOWED = "SELECT window(at, '60 seconds', '20 seconds') AS window, room, count(*) AS count FROM events GROUP BY 1, 2"
SECONDS = "SELECT window(at, '1 second') AS window, room, sum(n) AS total FROM events GROUP BY 1, 2"


def event(second: int, room: str, n: int = 1, **more: Any) -> dict[str, Any]:
    """Something that happened in the first minutes of an hour."""
    return {"room": room, "n": n, "at": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z", **more}


def put(folder: Path, name: str, *events: dict[str, Any]) -> Path:
    """A file of events; files are read in the order of their names."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in events))
    moment = 1_767_225_600 + int(name.partition(".")[0])
    os.utime(folder / name, (moment, moment))
    return folder


def written(folder: Path) -> mr.Pipeline:
    """A pipeline over events in files, with everything that a panel may look at."""
    pipeline = mr.Pipeline("shown")
    pipeline.source("events", mr.files(str(folder), schema=SCHEMA, max_files=1), watermark=("at", "1 hour"))
    pipeline.sql("windows", WINDOWED)
    pipeline.sql("seconds", SECONDS)
    pipeline.sql("rooms", "SELECT room, sum(n) AS total, max(at) AS newest FROM events GROUP BY room")
    return pipeline


def values(channels: Channels, name: str) -> dict[str, Any]:
    """What a panel's channel holds."""
    found: dict[str, Any] = channels.slot(f"panel:{name}").value
    return found


def milliseconds(second: int) -> int:
    return 1_767_225_600_000 + second * 1000


def test_times_that_no_browser_knows_fail_nothing(spark: SparkSession) -> None:
    day = "date_add(DATE'1970-01-01', d)"
    days = f"{day} AS day, named_struct('start', {day}, 'end', {day}) AS days"
    times = "timestamp_micros(m) AS at, CAST(timestamp_micros(m) AS timestamp_ntz) AS local"
    last, most = 2**31 - 1, 2**63 - 1
    rows = f"({last}, {most}), (1, 86400000000), ({-last}, {-most})"
    frame = spark.sql(f"SELECT {days}, {times} FROM VALUES {rows} AS t(d, m)")  # noqa: S608
    looks = columns_of(frame).values()
    assert [look.type for look in looks] == ["time", "window", "time", "time"]
    far, near, long_ago = frame.select(*(look.shown() for look in looks)).collect()
    assert set(far) == set(long_ago) == {None}
    assert set(near) == {86_400_000}
    assert frame.select(*(look.reversed() for look in looks)).count() == 3


def test_every_kind_of_panel_on_its_tables_queries(tmp_path: Path, run_pipeline: RunPipeline) -> None:
    folder = put(tmp_path / "in", "1.json", *(event(10, "hall") for _ in range(3)), event(30, "attic"))
    put(folder, "2.json", event(45, "attic"), event(46, "attic"), event(50, "hall", 7), event(65, "cellar"))
    odd = {"heat": float("nan"), "price": 1.5, "raw": "AAEC", "tags": ["a", "<b>"], "ok": True}
    put(folder, "3.json", event(66, "x" * 2000, 1, **odd))
    pipeline = written(folder)
    pipeline.sink("windows", mr.memory("w"), mode="update")
    pipeline.sink("seconds", mr.console(), mode="update")
    pipeline.sink("rooms", mr.memory("r"), mode="complete")
    pipeline.sink("events", mr.memory("e"))
    pipeline.sink("events", mr.console())
    pipeline.panel("windows", mr.top(label="room", value="count", limit=2, title="Busy"))
    pipeline.panel("windows", mr.heat(x="window", y="room", value="count"))
    pipeline.panel("seconds", mr.series(time="window", value="total", key="room"))
    pipeline.panel("rooms", mr.table(order="total desc", limit=2, columns=["room"]))
    pipeline.panel("rooms", mr.number(value="total"))
    pipeline.panel("events", mr.table(limit=3))
    pipeline.panel("events", mr.number(value="vanished"))
    pipeline.panel("events", mr.number(value="room"))
    channels = Channels()
    run_status = run_pipeline(pipeline, channels=channels)
    assert {one.query: one.rows for one in run_status.queries()} == dict.fromkeys(
        ("windows-update", "seconds-update", "rooms-complete", "events"), 9
    )

    top = values(channels, "windows-top")
    # Second 66 is in the windows that begin at 20, 40 and 60: the first of them to end is the fullest.
    assert (top["window"], top["columns"]) == ([milliseconds(20), milliseconds(80)], ["label", "value"])
    assert top["rows"] == [["attic", 3], ["cellar", 1]]
    assert top["cut"] == 2
    cells = {(x, y): value for x, y, value in values(channels, "windows-heat")["rows"]}
    assert cells[milliseconds(0), "hall"] == 4
    assert values(channels, "windows-heat")["types"] == ["time", "text", "number"]
    lines = values(channels, "seconds-series")["rows"]
    assert [milliseconds(10), "hall", 3] in lines
    assert [milliseconds(50), "hall", 7] in lines
    assert lines == sorted(lines)
    ranked = values(channels, "rooms-table")
    assert ranked["rows"] == [["hall", 10], ["attic", 3]]
    assert ranked["cut"] == 2
    assert len(values(channels, "rooms-number")["rows"]) == 1

    rows = values(channels, "events-table")
    assert rows["types"] == ["text", "number", "number", "number", "other", "other", "bool", "time"]
    room, n, heat, price, raw, tags, ok, at = rows["rows"][0]
    assert (len(room), room[-1], n, heat, price) == (501, "…", 1, None, 1.5)
    assert (raw, tags, ok, at) == ("0x000102", "[a, <b>]", True, milliseconds(66))
    assert (len(rows["rows"]), rows["cut"]) == (3, 6)
    for name, said in (("events-number", "vanished"), ("events-number-2", "number")):
        assert said in values(channels, name)["error"]["message"]
        assert values(channels, name)["error"]["where"].startswith(__file__)
    listed = {one["id"]: one for one in channels.slot("panels").value}
    assert listed["windows-top"]["title"] == "Busy"
    assert listed["windows-top"]["query"] == "windows-update"
    assert listed["events-number"]["error"]
    assert not any(one["inferred"] for one in listed.values())


def test_a_panel_of_its_own_leaves_nothing_behind_and_fails_alone(tmp_path: Path, run_pipeline: RunPipeline) -> None:
    folder = put(tmp_path / "in", "1.json", *(event(10, room, n) for n, room in enumerate("abcab")))
    pipeline = written(folder)
    pipeline.sql("broken", "SELECT raise_error('no') AS n, at FROM events")
    pipeline.sink("events", mr.memory("kept"))
    pipeline.panel("rooms", mr.top(label="room", value="total"))
    pipeline.panel("broken", mr.table())
    channels = Channels()

    def over() -> bool:
        drawn = values(channels, "rooms-top") or {"rows": ()}
        return len(drawn["rows"]) == 3 and bool((values(channels, "broken-table") or {"error": None})["error"])

    run_status = run_pipeline(pipeline, state=tmp_path / "state", until=over, channels=channels)
    assert values(channels, "rooms-top")["rows"] == [["b", 5], ["a", 3], ["c", 2]]
    assert "no" in str(values(channels, "broken-table")["error"])
    assert run_status.query("events").error is None
    # Without a page, or when the run ends by itself, no query is there for a panel alone.
    model = pipeline.model()
    assert [query.name for query in make_plan(model).queries] == ["events"]
    assert [query.name for query in make_plan(model, once=True, panels=True).queries] == ["events"]
    said: list[str] = []
    run_pipeline(pipeline, state=tmp_path / "state", say=said.append)
    assert not any("not used any more" in line for line in said)


def test_many_keys_stay_bounded_and_none_declared_are_inferred(tmp_path: Path, run_pipeline: RunPipeline) -> None:
    many = [event(n % 50, f"room {n:05}", n) for n in range(10_000)]
    folder = put(tmp_path / "in", "1.json", *many[:5000])
    put(folder, "2.json", *many[5000:])
    pipeline = written(folder)
    pipeline.sql("counted", "SELECT room, sum(n) AS total FROM events GROUP BY room")
    for table, mode in (("counted", "update"), ("seconds", "update"), ("rooms", "complete"), ("events", "append")):
        pipeline.sink(table, mr.memory(table), mode=mode)
    channels = Channels()
    run_pipeline(pipeline, channels=channels)
    listed = {one["id"]: one for one in channels.slot("panels").value}
    assert set(listed) == {"counted-top", "seconds-series", "rooms-series", "events-table"}
    assert all(one["inferred"] for one in listed.values())
    top = values(channels, "counted-top")
    assert [row[0] for row in top["rows"]] == [f"room {n:05}" for n in range(9999, 9989, -1)]
    series = values(channels, "seconds-series")
    assert len({row[1] for row in series["rows"]}) == 20
    assert series["cut"] > 20
    assert len(values(channels, "events-table")["rows"]) == 100


@pytest.mark.parametrize(
    ("panel", "expected"),
    [
        (mr.top(label="room", value="count"), []),
        (mr.series(time="WINDOW", value="count", key="room"), []),
        (mr.top(label="rooom", value="count"), ["panel.column"]),
        (mr.top(label="room", value="room"), ["panel.type"]),
        (mr.series(time="room", value="window"), ["panel.type", "panel.type"]),
        (mr.table(columns=["room", "x"], order="y desc", key="z"), ["panel.column"] * 3),
    ],
)
def test_check_deep_looks_at_columns(
    tmp_path: Path, spark: SparkSession, panel: tuple[str, dict[str, Any]], expected: list[str]
) -> None:
    pipeline = written(put(tmp_path / "in", "1.json", event(1, "hall")))
    pipeline.sink("windows", mr.console(), mode="update")
    pipeline.panel("windows", panel)
    found = [problem for problem in deep_problems(pipeline.model(), spark) if problem.condition.startswith("panel")]
    assert [problem.condition for problem in found] == expected
    assert all(problem.hint for problem in found)
