"""The demos that there are: a pipeline's file each, in `millrace/demos`, and what is poured into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import millrace
from millrace.errors import UnknownName

QUICK = "-XX:TieredStopAtLevel=1"
"""For Java: the first compiler only. Its code is slower and there much sooner, with half the CPU of a start."""
LIGHT = {
    "spark.driver.extraJavaOptions": f"{QUICK} -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}
"""What makes small batches cheap, so that six queries leave two cores some rest: 0.21 s of CPU a batch, not 0.37.

A few hundred rows need neither parallel shuffles nor compiled stages. For data of any size the defaults of
`millrace run` are better.
"""
FOLDER = Path(millrace.__file__).parent / "demos"


@dataclass(frozen=True)
class DemoFeed:
    """A feed into the topic of its name, and how many records a second."""

    feed: str
    rate: float
    malformed: float = 0.002
    disorder: float = 2.0

    @property
    def options(self) -> dict[str, Any]:
        """The options of the feed."""
        return {"malformed": self.malformed, "disorder": self.disorder}


@dataclass(frozen=True)
class Demo:
    """Something to watch."""

    name: str
    about: str
    feeds: tuple[DemoFeed, ...] = ()
    typed: str | None = None
    """The topic of what is typed in the terminal."""

    @property
    def file(self) -> Path:
        """The pipeline's file."""
        return FOLDER / f"{self.name}.yaml"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it fills."""
        return (*(one.feed for one in self.feeds), *((self.typed,) if self.typed else ()))


# Late enough, often enough, that the watermark of the pipeline leaves some out.
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
FIRST = "town"


def demo_of(name: str) -> Demo:
    """A demo by its name."""
    if name not in DEMOS:
        raise UnknownName.among("demo", name, DEMOS)
    return DEMOS[name]
