"""Serve the dashboard over made-up data, without Spark and without Kafka: for work on the page.

    python scripts/dashboard_sample.py [--port P] [--host H] [--rate R] [--read-only] [--hostile]
        [--fail SECONDS] [--start SECONDS]

    --port P        the port; without it the first free one from 4040 on (the address is printed)
    --host H        the address to listen at; beyond this machine a token is needed (it is in the printed address)
    --rate R        records a second that are pretended (default 500)
    --read-only     switch actions off
    --fail SECONDS  let the query `spikes` fail after so long (default 45; 0: never), and be restarted before
    --start SECONDS stay in the phase `starting` for so long (default 3)
    --hostile       fill panels and tails with markup, control characters, long texts, NaN and 10,000 keys

What the contract leaves open, as it is here and in `millrace run`:
- `panels` (slot) lists the panels, also those that are inferred once Spark runs; every `panel:ID` is a slot.
- A ring's data is `{"columns": {name: [values]}, "size": rows that are kept}`; an append that ends at version v has as
  many rows as versions were missed, so a reader that has some of them already drops those from the front.
- `history:*` has a column `phase:NAME` for each of Spark's steps; edges lead to sinks named `sink:INDEX`.
- A query has `out_rate` and `lag_why` (why lag is null) too.

It is the real server: the same protocol, snapshots, acknowledgements and channels as `millrace run`. Open it a second
time to see another epoch; kill and start it again (same --port) to see a page reconnect.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from sample_pipeline import OUTLINE, PANELS, TOPICS, described

from millrace.dashboard.run_interface import DeadLetterQuery, RunInterface, Work
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.errors import InputError, KafkaUnreachable, QueryFailed, UnknownName, UnknownTopic
from millrace.telemetry.channels import Channels
from millrace.telemetry.measurements import Lag, Measurements, ProcessMeter, Sampler
from millrace.telemetry.metrics import health
from millrace.telemetry.panel_registry import PanelRegistry
from millrace.telemetry.progress import METRICS, BatchProgress, SourceProgress
from millrace.telemetry.publisher import StatusPublisher
from millrace.telemetry.query_status import Phase, RestartRecord, RunStatus

RESTARTING = 10.0
"""Seconds that the query `spikes` waits for a restart before it fails for good."""
TAGS = ["coffee", "kafka", "spark", "rain", "music", "football", "python", "travel", "news", "cats", "bread", "sun"]
LANGUAGES = ["en", "de", "fr", "ja", "es"]
AUTHORS = [f"{name}{number}" for name in ("ada", "linus", "grace", "alan") for number in range(8)]
REASONS = ["not JSON: expected a value at line 1 column 1", "field 'at': not a timestamp", "field 'id' is missing"]
MARKUP = '<script>alert("x")</script><img src=x onerror=alert(1)> & "quotes" \u202e\x00\x1b[31m'


class Story:
    """A run that is made up as it goes."""

    def __init__(self, rate: float, start: float, fail: float, *, hostile: bool) -> None:
        self.run_status, self.measurements, self.channels = RunStatus(), Measurements(), Channels()
        self.chance = random.Random(7)
        self.rate, self.fail, self.hostile = rate, fail, hostile
        self.began = time.time()
        self.ready = self.began + start
        self.ends = {(topic, number): 1000 * (number + 1) for topic, many in TOPICS.items() for number in range(many)}
        self.read = dict(self.ends)
        self.batch: dict[str, int] = {}
        self.next: dict[str, float] = {}
        self.dead = 0
        self.last = self.began
        self.gallery = PanelRegistry(self.channels)
        for hung in PANELS:
            self.gallery.register(hung)
        self.telling = StatusPublisher(self.run_status, self.measurements, OUTLINE, self.channels)
        for one in OUTLINE.queries:
            self.channels.row_buffer(f"lag:{one.name}", 600, ("time", "lag", "seconds"))

    @property
    def pace(self) -> float:
        """Records a second now: waves, with a burst now and then."""
        moment = time.time() - self.began
        burst = 3.0 if moment % 40 > 34 else 1.0
        return self.rate * burst * (1 + 0.3 * math.sin(moment / 6))

    def look(self) -> None:
        """One step."""
        now = time.time()
        self._grow(now - self.last)
        self.last = now
        if now < self.ready:
            self.measurements.doing = "starting Spark"
            return
        self.measurements.doing = ""
        for one in OUTLINE.queries:
            self._work(one.name, now)
        self.gallery.look()

    def _grow(self, seconds: float) -> None:
        shares = {"posts": 1.0, "authors": 0.02, "popular": 0.1, "spikes": 0.01, "posts.dead": 0.005}
        for (topic, number), end in self.ends.items():
            grown = self.pace * shares.get(topic, 0) * seconds / TOPICS[topic] * (1 + 0.2 * number)
            self.ends[topic, number] = end + int(grown) + (self.chance.random() < grown % 1)
        self.measurements.put_rates({topic: self.pace * share for topic, share in shares.items()})

    def _work(self, query: str, now: float) -> None:
        if query not in self.batch:
            self.run_status.started(query)
            self.batch[query] = 0
            self.next[query] = now + self.chance.uniform(0.5, 2)
            return
        standing = self.run_status.query(query)
        if standing.phase.ended:
            return
        left = self.fail - (now - self.began)
        if query == "spikes" and self.fail and 0 <= left < RESTARTING:
            if standing.phase is not Phase.RESTARTING:
                again = RestartRecord(5, 5, datetime.now(UTC) + timedelta(seconds=left), "Kafka does not answer")
                self.run_status.restarting(query, KafkaUnreachable("no broker answers"), again)
            return
        if query == "spikes" and self.fail and left < 0:
            why = "java.lang.ArithmeticException: divide by zero"
            self.run_status.ended(
                query, QueryFailed(f"query {query!r} failed: a batch failed", why=why, hint="mend the SQL")
            )
            return
        if now < self.next[query]:
            self.run_status.update(query, Phase.WAITING, "Waiting for next trigger")
            return
        self._batch(query, now)

    def _batch(self, query: str, now: float) -> None:
        self.run_status.update(query, Phase.RUNNING, "Processing new data")
        mine = {place: end for place, end in self.ends.items() if place[0] in OUTLINE.read_by(query)}
        spent = {"latestOffset": 8, "getBatch": 2, "queryPlanning": 30, "walCommit": 25, "commitOffsets": 22}
        spent = {name: max(1, int(ms * self.chance.uniform(0.6, 1.8))) for name, ms in spent.items()}
        spent["addBatch"] = int(self.chance.uniform(120, 400) * (2.5 if query == "popular-update" else 1))
        whole = sum(spent.values()) + 5
        rows = int(self.pace * max(0.3, whole / 1000))
        quiet = query == "spikes"
        self.run_status.batch_done(
            BatchProgress(
                query,
                "run",
                self.batch[query],
                datetime.fromtimestamp(now - whole / 1000, UTC),
                rows,
                rows / max(0.3, whole / 1000),
                rows * 1000 / whole,
                MappingProxyType({**spent, "triggerExecution": whole}),
                whole,
                datetime.now(UTC) - timedelta(seconds=self.chance.uniform(9, 14)),
                state_rows=0 if query == "languages" else 1200 + int(400 * math.sin(now / 15)),
                state_bytes=0 if query == "languages" else 900_000 + int(200_000 * math.sin(now / 15)),
                late_rows=int(self.chance.random() < 0.2) * 3,
                sources=(SourceProgress("KafkaV2[Subscribe[posts]]", rows, end=_nested(mine), latest=_nested(mine)),),
                sink_rows=0 if quiet else rows // 10,
            )
        )
        self.batch[query] += 1
        self.next[query] = now + (1.0 if query == "languages" else 0.05) + (self.chance.random() < 0.02) * 6
        self.dead += self.chance.random() < 0.3
        self.run_status.set_dead_letters("posts", self.dead)
        self._panels(query)

    def lag(self) -> None:
        """How far queries are behind, each second."""
        for one in OUTLINE.queries:
            if one.name not in self.batch:
                continue
            waits = {
                f"{topic}/{number}": int(self.pace * self.chance.uniform(0.1, 0.6) / TOPICS[topic])
                for topic in OUTLINE.read_by(one.name)
                for number in range(TOPICS[topic])
            }
            lag = Lag(sum(waits.values()), round(sum(waits.values()) / self.pace, 2), waits)
            self.measurements.put_lag(one.name, lag)
            row = {f"p:{place}": count for place, count in waits.items()}
            moment = round(time.time() * 1000)
            self.channels.row_buffer(f"lag:{one.name}", 600).append(
                {"time": moment, "lag": lag.records, "seconds": lag.seconds, **row}
            )

    def _panels(self, query: str) -> None:
        moment = round(time.time() * 1000)
        if query == "popular-update":
            counts = {tag: int(200 * (1 + math.sin(moment / 9000 + place))) + 5 for place, tag in enumerate(TAGS)}
            if self.hostile:
                counts |= {MARKUP: 300, "x" * 500: 120, "": 40}
            start = moment // 10_000 * 10_000 - 50_000
            best = [(tag, count, start, start + 60_000) for tag, count in counts.items()]
            self._observe("popular-top", best, len(counts))
            heat = [(start + 50_000, tag, int(90 * (1 + math.sin(start / 31_000 + n)))) for n, tag in enumerate(TAGS)]
            self._observe("popular-heat", heat)
        if query == "languages":
            second = moment // 1000 * 1000
            rows: list[Any] = [
                (second, second + 1000, language, self.pace / (place + 1.5) * self.chance.uniform(0.9, 1.1))
                for place, language in enumerate(LANGUAGES)
            ]
            if self.hostile:
                rows += [(second, second + 1000, f"key {self.chance.randrange(10_000)}", 0.5) for _ in range(100)]
            self._observe("languages-series", rows)
            self._observe("languages-number", [(self.run_status.query(query).rows, None, None)])
        if query == "spikes":
            scores = [float("inf"), None] if self.hostile else []
            found = [
                (moment - 700 * n, self.chance.choice(AUTHORS), self.text(), score)
                for n, score in enumerate([*scores, *(round(self.chance.gauss(0, 5), 3) for _ in range(5))])
            ]
            self._observe("spikes-table", found, 120)

    def _observe(self, panel: str, rows: list[Any], total: int | None = None) -> None:
        """What Spark would tell with a batch."""
        told = [{f"c{place}": value for place, value in enumerate(row)} for row in rows]
        self.gallery.observe({METRICS: {panel: told, f"#{panel}": len(rows) if total is None else total}})

    def text(self) -> str:
        """A post; one in ten has markup in it."""
        if self.chance.random() < 0.1:
            return f"{MARKUP} #{self.chance.choice(TAGS)}"
        return f"I like #{self.chance.choice(TAGS)} more than #{self.chance.choice(TAGS)} today"

    def topics(self) -> list[Mapping[str, Any]]:
        """Every topic."""
        made = []
        for topic, many in TOPICS.items():
            rate = self.measurements.rate(topic) or 0.0
            partitions = [
                {
                    "id": number,
                    "leader": 1,
                    "replicas": [1],
                    "isr": [1],
                    "start": 0,
                    "end": self.ends[topic, number],
                    "rate": rate / many,
                }
                for number in range(many)
            ]
            groups = [{"group": "analytics", "state": "stable", "lag": 12}] if topic == "popular" else []
            made.append(
                {
                    "name": topic,
                    "internal": topic.startswith("__"),
                    "partitions": partitions,
                    "groups": groups,
                    "rate": rate,
                    "bytes": None,
                }
            )
        return made

    def work(self, name: str) -> Work | None:
        """What is filled only while somebody looks."""
        if name == "topics":
            return lambda stop: self._every(stop, 2.0, lambda: self.channels.slot("topics").set(self.topics()))
        if name == "dead":
            return lambda stop: self._every(stop, 2.0, lambda: self.channels.slot("dead").set(self.groups()))
        if name.startswith("tail:"):
            return lambda stop: self._tail(name, stop)
        return None

    def _tail(self, name: str, stop: threading.Event) -> None:
        topic = name.removeprefix("tail:")
        if topic not in TOPICS:
            raise UnknownTopic(f"there is no topic {topic!r}", hint="look at the list of topics")
        ring = self.channels.row_buffer(name, 500)
        ring.clear()
        self._every(stop, 0.1, lambda: ring.extend(self._records(topic, self.chance.randrange(4))))

    def _records(self, topic: str, many: int) -> list[dict[str, Any]]:
        return [self._record(topic) for _ in range(many)]

    def _record(self, topic: str) -> dict[str, Any]:
        number = self.chance.randrange(TOPICS[topic])
        binary = self.chance.random() < 0.02
        moment = datetime.now(UTC).isoformat()
        words = self.text().replace("\\", "\\\\").replace('"', '\\"')
        author = self.chance.choice(AUTHORS)
        value = (
            f'{{"id": "{self.chance.getrandbits(40):x}", "author": "{author}", "at": "{moment}", "text": "{words}"}}'
        )
        return {
            "time": round(time.time() * 1000),
            "partition": number,
            "offset": self.ends[topic, number],
            "key": self.chance.choice([None, *AUTHORS]),
            "value": "00ff17a0 4d5a" if binary else value,
            "cut": False,
            "binary": binary,
            "headers": {"trace": f"{self.chance.getrandbits(32):x}"} if self.chance.random() < 0.3 else {},
            "skipped": self.chance.choice([0, 0, 0, 0, 37]),
        }

    def records(self, topic: str, start: str, most: int) -> list[Mapping[str, Any]]:
        """Records of a topic."""
        del start
        if topic not in TOPICS:
            raise UnknownTopic(f"there is no topic {topic!r}")
        return list(self._records(topic, min(most, 100)))

    def groups(self) -> list[dict[str, Any]]:
        """Dead letters, grouped."""
        moment = round(time.time() * 1000)
        return [
            {
                "source": "posts",
                "topic": "posts.dead",
                "query": "popular-update",
                "reason": reason,
                "count": self.dead // (place + 1),
                "newest": moment - 5000 * place,
                "sample": {"partition": place, "offset": 1000 + self.dead},
            }
            for place, reason in enumerate(REASONS)
            if self.dead // (place + 1)
        ]

    def letters(self, wanted: DeadLetterQuery) -> Iterator[Mapping[str, Any]]:
        """Dead letters, one by one."""
        for number in range(min(self.dead, wanted.most or 100_000)):
            reason = REASONS[number % len(REASONS)]
            if wanted.reason in (None, reason) and wanted.source in (None, "posts"):
                yield {
                    "topic": "posts",
                    "partition": number % 4,
                    "offset": 1000 + number,
                    "timestamp": round(self.began * 1000) + number * 900,
                    "reason": reason,
                    "pipeline": "trending",
                    "source": "posts",
                    "key": None,
                    "headers": [],
                    "value": "e2Jyb2tlbg==",
                    "text": "{broken " + MARKUP,
                    "dead": {"topic": "posts.dead", "partition": number % 4, "offset": number},
                    "buried": round(time.time() * 1000),
                }

    def sql(self, sql: str, most: int) -> Mapping[str, Any]:
        """Rows of a table in memory."""
        time.sleep(0.2)
        if not sql.lstrip().lower().startswith("select"):
            raise InputError("only SELECT can be asked here", hint="write SELECT … FROM popular")
        if "popular" not in sql:
            raise UnknownName.among("table in memory", sql.split()[-1], ["popular"])
        rows = [[tag, self.chance.randrange(500), None] for tag in [*TAGS, MARKUP]]
        return {"columns": ["tag", "count", "note"], "rows": rows[:most]}

    @staticmethod
    def _every(stop: threading.Event, seconds: float, act: Any) -> None:
        act()
        while not stop.wait(seconds):
            act()


def _nested(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets.items():
        made.setdefault(topic, {})[str(number)] = offset
    return made


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--start", type=float, default=3)
    parser.add_argument("--fail", type=float, default=45)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--hostile", action="store_true")
    given = parser.parse_args()
    story = Story(given.rate, given.start, given.fail, hostile=given.hostile)
    subject = RunInterface(
        story.channels,
        lambda: health(story.run_status, story.measurements, OUTLINE),
        described,
        story.sql,
        story.topics,
        story.records,
        story.letters,
        story.work,
        lambda: story.telling.events.add("a page was opened"),
    )
    samplers = [
        Sampler("story", story.look, 0.1),
        Sampler("lag", story.lag, 1.0),
        Sampler("run_status", story.telling.look, 0.2),
        Sampler("process", ProcessMeter(story.measurements).look, 1.0),
    ]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with Dashboard(subject, ServerOptions(given.host, given.port, given.read_only)) as dashboard:
        print(dashboard.address, flush=True)
        for one in samplers:
            one.start()
        stop.wait()
        for one in samplers:
            one.close()


if __name__ == "__main__":
    main()
