"""A run that is made by hand: a real server over channels that a test fills."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from millrace.dashboard.run_interface import DeadLetterQuery, LetterGroup, RunInterface
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.errors import InputError
from millrace.telemetry.channels import Channels
from millrace.telemetry.metrics import Health

AT = {"file": "pipeline.py", "line": 3}
BROKEN = "field 'at': not a timestamp"
WORDS = {
    "": ["1,234", "2.5 s", "12 s", "posts", "500/s", "query popular started"],
    "#/query/popular": ["Batch duration by step", "addBatch", "posts/1", "Watermark behind now", "159", "walCommit"],
    "#/results": ["4,711", "kafka", "mill", "Ask the tables in memory"],
    "#/topics/posts": ["posts", "readers", "river", "lack a copy"],
    "#/dead": ["posts.dead", BROKEN],
    "#/about": ["none beyond the run", "spark.master", "every core", "4.3.0"],
}
"""What is to be read on each page once everything is there."""


def now() -> int:
    """Epoch milliseconds, as every time on the wire."""
    return round(time.time() * 1000)


class Site:
    """Serves the built page; what it shows is put into its channels by the test."""

    def __init__(self) -> None:
        self.channels = Channels()
        self.panels: list[dict[str, Any]] = []
        self.asked: list[str] = []
        """SQL that was run."""
        self.redriven: list[LetterGroup] = []
        """What was sent again; the channels are told by the test."""
        self.bytes = b'{"at": "never"}'
        """Of the one dead letter."""
        self._open = ExitStack()
        self.port = 0
        self.address = ""

    def start(self, *, read_only: bool = False) -> None:
        """Serve; again, it is at the same address."""
        subject = RunInterface(
            self.channels,
            lambda: Health(True, True),
            self._pipeline,
            sql=self._sql,
            letters=self._letters,
            redrive=self._redrive,
            work=lambda _: None,
        )
        options = ServerOptions(port=self.port, read_only=read_only)
        served = self._open.enter_context(Dashboard(subject, options))
        self.port, self.address = served.port, served.address

    def stop(self) -> None:
        """Be gone, as a process that was killed is."""
        self._open.close()
        self._open = ExitStack()

    def restart(self) -> None:
        """Another process: nothing is known of the channels that were."""
        self.stop()
        self.channels = Channels()
        self.start()

    def state(
        self, figures: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """Tell how the run stands."""
        told = {
            "in_rate": 1234.0,
            "out_rate": 120.0,
            "lag": 77,
            "lag_seconds": 2.5,
            "watermark_gap_ms": 12_000,
            "errors": 0,
            "dead": 3,
            "late": 5,
        }
        self.channels.slot("state").set(
            {
                "time": now(),
                "phase": "running",
                "reasons": [],
                "figures": told | dict(figures or {}),
                "queries": [_query() | dict(query or {})],
                "edges": [
                    {"from": "posts", "to": "popular", "rate": 500},
                    {"from": "popular", "to": "sink:0", "rate": 9},
                ],
                "dead": {"posts": 3},
                "process": {"cpu": 0.4, "memory": 1 << 28, "jvm_memory": 1 << 29, "threads": 40},
            }
            | more
        )

    def event(self, text: str, level: str = "info", query: str | None = None) -> None:
        """Tell that something happened."""
        row = {"time": now(), "level": level, "query": query, "text": text}
        self.channels.row_buffer("events", 500, row).append(row)

    def batches(self, count: int, query: str = "popular") -> None:
        """Tell of some batches and of the lag beside them."""
        history, lag = self.channels.row_buffer(f"history:{query}", 600), self.channels.row_buffer(f"lag:{query}", 600)
        start = now() - count * 1000
        for number in range(count):
            time_ = start + number * 1000
            history.append(
                {
                    "time": time_,
                    "batch": number,
                    "input_rows": 500,
                    "input_rate": 500.0 + number,
                    "rate": 900.0,
                    "ms": 200,
                    "watermark_gap_ms": 12_000,
                    "state_rows": 100 + number,
                    "state_bytes": 100_000,
                    "late": 0,
                    "lag": 77,
                    "sink_rows": 9,
                    "phase:addBatch": 150,
                    "phase:walCommit": 30,
                }
            )
            lag.append({"time": time_, "lag": 77, "seconds": 2.5, "p:posts/0": 40, "p:posts/1": 37})

    def panel(self, kind: str, columns: list[str], rows: list[list[Any]], **more: Any) -> str:
        """Hang up a panel, or renew it; its id comes back."""
        name = f"popular-{kind}"
        options = more.pop("options", {})
        if all(one["id"] != name for one in self.panels):
            self.panels.append(
                {"id": name, "table": "popular", "kind": kind, "title": kind, "options": options, "inferred": False}
            )
            self.channels.slot("panels").set(self.panels)
        told = {"columns": columns, "rows": rows, "time": now(), "cut": 0, "window": None, "error": None, "note": None}
        self.channels.slot(f"panel:{name}").set(told | more)
        return name

    def topics(self) -> None:
        """Tell of two topics."""
        partitions = [
            {"id": n, "leader": 1, "replicas": [1, 2], "isr": [1], "start": 0, "end": 100 + n, "rate": 5}
            for n in range(3)
        ]
        groups = [{"group": "readers", "state": "stable", "lag": 4}]
        made = {"partitions": partitions, "rate": 15.0, "bytes": 4096, "groups": groups}
        self.channels.slot("topics").set(
            [{"name": "posts", "internal": False, **made}, {"name": "__offsets", "internal": True, **made}]
        )

    def tail(self, *values: str | None, topic: str = "posts") -> None:
        """Records that come into a topic."""
        ring = self.channels.row_buffer(f"tail:{topic}", 500)
        start = ring.version
        ring.extend(
            {
                "time": now(),
                "partition": 0,
                "offset": start + n,
                "key": None,
                "value": value,
                "cut": False,
                "binary": False,
                "headers": [],
                "skipped": 0,
            }
            for n, value in enumerate(values)
        )

    def dead(self, reason: str = BROKEN, *, count: int = 3, redriven: int = 0) -> None:
        """Tell of dead letters."""
        group = {"source": "posts", "topic": "posts.dead", "query": "popular", "reason": reason, "count": count}
        group["redriven"] = redriven
        self.channels.slot("dead").set([group | {"newest": now(), "sample": {"partition": 0, "offset": 7}}])

    def everything(self) -> None:
        """Something for every page."""
        self.state()
        self.event("query popular started", query="popular")
        self.batches(60)
        self.panel("number", ["value"], [[4711]])
        self.panel("top", ["label", "value"], [["kafka", 9], ["spark", 7]])
        start = now() - 60_000
        self.panel("series", ["time", "key", "value"], [[start + n * 1000, key, n] for n in range(60) for key in "ab"])
        self.panel("heat", ["x", "y", "value"], [[x, y, len(x + y)] for x in ("mon", "tue") for y in ("a", "bb")])
        self.panel("table", ["word", "count"], [["river", 3], ["mill", 2]])
        self.topics()
        self.tail('{"word": "river"}', None)
        self.dead()

    def _pipeline(self) -> dict[str, Any]:
        return {
            "name": "river",
            "file": "pipeline.py",
            "version": "0",
            "generation": 1,
            "generations": [],
            "sources": [{"name": "posts", "connector": "kafka", "detail": "posts", "watermark": "at 10s", **AT}],
            "tables": [{"name": "popular", "reads": ["posts"], "sql": "SELECT 1", "watermark": None, **AT}],
            "sinks": [
                {
                    "table": "popular",
                    "connector": "memory",
                    "detail": "popular",
                    "to": "the memory table popular",
                    "mode": "update",
                    "guarantee": "none beyond the run",
                    "query": "popular",
                    **AT,
                }
            ],
            "queries": [{"name": "popular", "table": "popular", "mode": "update", "trigger": "fastest", "sinks": [0]}],
            "panels": self.panels,
            "memory": ["popular"],
            "topics": ["posts"],
            "settings": [{"name": "spark.master", "value": "local[*]", "why": "every core"}],
            "versions": {"millrace": "0", "pyspark": "4.3.0"},
        }

    def _sql(self, sql: str, most: int) -> Mapping[str, Any]:
        del most
        self.asked.append(sql)
        if not sql.lower().startswith("select"):
            raise InputError("only SELECT can be asked here", hint="write SELECT … FROM popular")
        return {"columns": ["word", "count"], "rows": [["<b>river</b>", 3], [None, 4]]}

    def _letters(self, wanted: DeadLetterQuery) -> Iterator[Mapping[str, Any]]:
        from millrace.dead_letters.letter import DeadLetter, to_json

        del wanted
        told = to_json(
            DeadLetter(
                value=self.bytes, topic="posts", partition=0, offset=7, timestamp=now(), reason=BROKEN, source="posts"
            )
        )
        lies = {"topic": "posts.dead", "partition": 0, "offset": 3}
        yield {**told, "dead": lies, "place": "posts.dead[0]@3", "redriven": bool(self.redriven), "attempts": 2}

    def _redrive(self, group: LetterGroup) -> Mapping[str, Any]:
        self.redriven.append(group)
        failures = [{"place": "posts[0]@7", "why": "ValueError: <b>no</b>"}] if group.letter else []
        told = {"sent": 3 - len(failures), "already": 0, "left": 0, "failed": len(failures), "failures": failures}
        return {"state": "done", **told, "error": None}


def _query() -> dict[str, Any]:
    return {
        "name": "popular",
        "table": "popular",
        "phase": "running",
        "doing": "Processing new data",
        "batches": 60,
        "rows": 30_000,
        "late": 5,
        "in_rate": 500.0,
        "rate": 900.0,
        "out_rate": 9.0,
        "batch_ms": 200,
        "busy": 0.4,
        "lag": 77,
        "lag_seconds": 2.5,
        "lag_why": None,
        "watermark": now() - 12_000,
        "watermark_gap_ms": 12_000,
        "state_rows": 159,
        "state_bytes": 100_000,
        "sink_rows": 9,
        "since": now() - 60_000,
        "silence": None,
        "error": None,
    }
