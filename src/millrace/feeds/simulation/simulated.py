"""What all simulations share: a seed, event times, disorder and malformed records."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from millrace.clients.records import Record
from millrace.feeds.base import Batch, Feed, Run
from millrace.feeds.malformed import Shape, malform
from millrace.feeds.moments import event_times
from millrace.plugins import option
from millrace.units import parse_duration, parse_rate, parse_share, parse_time

Scene = Callable[[Sequence[int]], list[Record]]
"""Makes one record for each event time (milliseconds since 1970, in order of arrival)."""

_DEFAULT_PACE = 1000.0


@dataclass(frozen=True, kw_only=True)
class Simulated(Feed):
    """Events that nobody sent.

    Every byte follows from the options alone: with a seed, a start and a pace, each run sends the same
    records, however the sink takes them and however long it takes. Malformed records take the place of
    good ones and leave the rest as they are.
    """

    schema: ClassVar[str]
    """The columns of a good record, in its order, as Spark DDL."""
    moment: ClassVar[str]
    """The column that holds the event time."""

    seed: int | None = option(
        None, "The same number gives the same events again.", shown_default="another one at each run"
    )
    start: datetime | None = option(  # noqa: RUF009 - a field specifier, as `field` is
        None,
        "Event time of the first event.",
        parse=parse_time,
        shown_default="now; with a count and no rate, such that the last event is now",
    )
    pace: float | None = option(
        None, "Events for each second of event time.", parse=parse_rate, shown_default="the rate, or 1000/s"
    )
    disorder: float = option(
        2.0,
        "How late an event may arrive, in event time; most are late by less than a tenth of it.",
        parse=parse_duration,
        shown_default="2s",
    )
    malformed: float = option(0.0, "Share of records to break, in many ways.", parse=parse_share, shown_default="0%")

    @abstractmethod
    def scene(self, rng: random.Random) -> Scene:
        """A new world; it is asked for records of ever later chunks and draws only on this generator."""

    def batches(self, run: Run) -> Iterator[Batch]:
        """Records without end, from the first one."""
        seed = self._seed(run)
        rng, dice = random.Random(seed), random.Random(f"{seed} malformed")
        scene = self.scene(rng)
        pace = self.pace or run.rate or _DEFAULT_PACE
        for times in event_times(rng, self._start(run, pace), pace, self.disorder):
            if run.stop.is_set():
                return
            yield Batch(self._break_some(scene(times), dice))

    def _seed(self, run: Run) -> int:
        if self.seed is not None:
            return self.seed
        seed = random.SystemRandom().getrandbits(32)
        run.say(f"seed {seed}")
        return seed

    def _start(self, run: Run, pace: float) -> int:
        if self.start is not None:
            return round(self.start.timestamp() * 1000)
        history = (run.count - 1) / pace if run.count and run.rate is None else 0.0
        return round((time.time() - history) * 1000)

    def _break_some(self, records: list[Record], dice: random.Random) -> list[Record]:
        if not self.malformed:
            return records
        shape = Shape.of(self.schema, self.moment)
        return [
            record._replace(value=malform(record.value, shape, dice))
            if record.value is not None and dice.random() < self.malformed
            else record
            for record in records
        ]
