"""`millrace demo`: a broker, a feed of events, and what arrives, live."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.kafka import broker
from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig
from millrace.cli.output import err, say
from millrace.cli.signals import until_stopped
from millrace.errors import MillraceError
from millrace.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from rich.console import RenderableType

    from millrace.clients.cluster import Cluster

_TOPIC = "posts"
_PARTITIONS = 4
_NEWEST = 10


@dataclass
class Scene:
    """What the view shows."""

    address: str
    started: float = field(default_factory=time.monotonic)
    ends: dict[int, int] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    newest: deque[Any] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    read: int = 0
    failure: MillraceError | None = None

    def measure(self, ends: dict[int, int], seconds: float) -> None:
        """Take in the partitions' end offsets, so many seconds after the last time."""
        if self.ends and seconds > 0:
            self.rates = {number: (end - self.ends.get(number, 0)) / seconds for number, end in ends.items()}
        self.ends = ends


def demo(
    for_: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long it runs.")] = "60s",
    rate: Annotated[str, typer.Option("--rate", metavar="RATE", help="Posts a second.")] = "500/s",
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Start Kafka, pour simulated posts into it, and watch them arrive."""
    duration, pace = parse_duration(for_), parse_rate(rate)
    with until_stopped() as stop, broker(kafka, kafka_config, data) as cluster:
        scene = Scene(cluster.bootstrap)
        threads = [
            threading.Thread(target=_guarded, args=(scene, stop, work), daemon=True)
            for work in (lambda: _pour(cluster, pace, duration, stop), lambda: _tail(cluster, scene, stop))
        ]
        _prepare(cluster)
        for thread in threads:
            thread.start()
        _watch(cluster, scene, duration, stop)
        stop.set()
        for thread in threads:
            thread.join(10)
        if scene.failure:
            raise scene.failure
    total = sum(scene.ends.values())
    say(f"{total:,} records are in topic {_TOPIC!r}; they stay for next time")
    me = "millrace" if shutil.which("millrace") else os.path.relpath(sys.argv[0])
    say(f"next: {me} kafka up --detach, then {me} kafka consume posts --from-beginning --max 5")


def _prepare(cluster: Cluster) -> None:
    from millrace.clients import topics

    topics.ensure(cluster, _TOPIC, _PARTITIONS)


def _guarded(scene: Scene, stop: threading.Event, work: Any) -> None:
    """Work in a thread; its failure ends the demo and is told there."""
    try:
        work()
    except MillraceError as error:
        scene.failure = error
        stop.set()


def _pour(cluster: Cluster, rate: float, duration: float, stop: threading.Event) -> None:
    from millrace.connectors.base import SINKS, Target
    from millrace.feeds.base import FEEDS, Run
    from millrace.feeds.pump import pump

    sink = SINKS.load("kafka")(Target(_TOPIC, cluster=lambda: cluster))
    pump(FEEDS.load(_TOPIC)(), sink, Run(rate, stop=stop), duration=duration)


def _tail(cluster: Cluster, scene: Scene, stop: threading.Event) -> None:
    from millrace.clients.consumer import Reading, read

    for batch in read(cluster, Reading(_TOPIC, stop=stop)):
        scene.newest.extend(batch[-_NEWEST:])
        scene.read += len(batch)


def _watch(cluster: Cluster, scene: Scene, duration: float, stop: threading.Event) -> None:
    from rich.live import Live

    console = err()
    deadline = scene.started + duration
    last = time.monotonic()
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while time.monotonic() < deadline and not stop.wait(0.5):
            now = time.monotonic()
            scene.measure(_ends(cluster), now - last)
            last = now
            if console.is_terminal:
                live.update(_picture(scene, deadline - now), refresh=True)
            else:
                console.print(_sentence(scene))


def _ends(cluster: Cluster) -> dict[int, int]:
    from millrace.clients import topics

    return {one.id: one.end or 0 for one in topics.describe(cluster, [_TOPIC])[0].partitions}


def _sentence(scene: Scene) -> str:
    return f"{sum(scene.ends.values()):,} records in the topic, {sum(scene.rates.values()):,.0f}/s, {scene.read:,} read"


def _picture(scene: Scene, left: float) -> RenderableType:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    flow = Text.assemble(
        ("feed posts", "bold cyan"), "  →  ", (f"Kafka {scene.address}", "bold green"), "  →  ", ("you", "bold magenta")
    )
    partitions = Table(box=None, pad_edge=False, padding=(0, 2))
    for heading in ("partition", "records", "records/s", ""):
        partitions.add_column(heading, justify="left" if not heading else "right")
    most = max([1.0, *scene.rates.values()])
    for number, end in sorted(scene.ends.items()):
        rate = scene.rates.get(number, 0.0)
        partitions.add_row(str(number), f"{end:,}", f"{rate:,.0f}", Text("█" * round(24 * rate / most), style="green"))
    newest = Table(box=None, pad_edge=False, padding=(0, 2), expand=True)
    for heading in ("place", "author", "newest posts"):
        newest.add_column(heading, no_wrap=True, overflow="ellipsis")
    for message in reversed(scene.newest):
        newest.add_row(f"{message.partition()}@{message.offset()}", *_post(message.value()))
    foot = Text(f"{_sentence(scene)}; {left:.0f} s left, Ctrl-C ends it", style="dim")
    return Panel(Group(flow, Text(), partitions, Text(), newest, Text(), foot), title="millrace demo", padding=(1, 2))


def _post(value: bytes | None) -> tuple[str, Any]:
    import orjson
    from rich.text import Text

    post = orjson.loads(value or b"{}")
    text = Text(str(post.get("text", "")))
    text.highlight_regex(r"#\w+", "bold yellow")
    return str(post.get("author", "")), text
