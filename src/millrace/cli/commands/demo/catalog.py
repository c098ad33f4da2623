"""The demos: a pipeline file each, in `millrace/demos`, and the feeds that write to its topics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import millrace
from millrace.errors import UnknownName

FAST_START = "-XX:TieredStopAtLevel=1"
"""Java uses its first compiler only: the code is slower, but compiled sooner, with half the CPU time of a start."""
_CODE_CACHE = "-XX:ReservedCodeCacheSize=240m"
"""As with both compilers: in the 48 MB of the first alone a Spark ended after some hundred queries."""
SMALL_BATCHES = {
    "spark.driver.extraJavaOptions": f"{FAST_START} {_CODE_CACHE} -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}
"""Settings for small batches, so that six queries fit on two cores: 0.21 s of CPU time a batch instead of 0.37 s.

A few hundred rows need neither parallel shuffles nor compiled stages. For larger data the defaults of `millrace run`
are better.
"""
FOLDER = Path(millrace.__file__).parent / "demos"


@dataclass(frozen=True)
class DemoFeed:
    """A feed that writes to the topic of its name, and its records per second."""

    feed: str
    rate: float
    malformed: float = 0.002
    disorder: float = 2.0


@dataclass(frozen=True)
class Demo:
    """A pipeline with its feeds."""

    name: str
    about: str
    feeds: tuple[DemoFeed, ...] = ()
    typed: str | None = None
    """The topic for lines typed in the terminal."""

    @property
    def file(self) -> Path:
        """The pipeline's file."""
        return FOLDER / f"{self.name}.yaml"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it writes to."""
        return (*(feed.feed for feed in self.feeds), *((self.typed,) if self.typed else ()))


# Some events are late enough for the watermark of the pipeline to drop them.
_TOWN = (DemoFeed("posts", 200.0, disorder=20.0), DemoFeed("sensors", 200.0))
DEMOS = {
    demo.name: demo
    for demo in (
        Demo("town", "what people write about and what their homes measure: trends, alerts, dead letters", _TOWN),
        Demo("wordcount", "words that you type, counted", typed="lines"),
        Demo("trips", "a bike share: where people ride from and to", (DemoFeed("trips", 100.0),)),
        Demo("logs", "the logs of a web shop: how much, how slow, what fails", (DemoFeed("weblogs", 300.0),)),
    )
}
DEFAULT = "town"


def demo_of(name: str) -> Demo:
    """Return the demo with this name."""
    if name not in DEMOS:
        raise UnknownName.among("demo", name, DEMOS)
    return DEMOS[name]
