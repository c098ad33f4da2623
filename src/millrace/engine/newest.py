"""Whether a query's checkpoint is the newest that there is, as its sinks tell: a plan asks them as a run does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from millrace.connectors.options import make_writer
from millrace.connectors.stream import Site, Writer
from millrace.engine.checkpoint import unfinished
from millrace.engine.remembered import checkpoint_of
from millrace.engine.resuming import REFUSED, Outlook
from millrace.errors import MillraceError, StateMismatch
from millrace.pipeline.plan import Query


def sites(ground: Site, query: Query, writers: Sequence[Writer], checkpoint: Path) -> list[Site]:
    """What each sink of a query may know; of several that write to the same place, how many are before it."""
    site = replace(
        ground,
        name=query.table,
        mode=query.mode,
        batches=query.batches,
        query=query.name,
        checkpoint=checkpoint,
        replayed=unfinished(checkpoint),
    )
    places = [writer.touches(site.name) for writer in writers]
    return [replace(site, twin=places[:number].count(place)) for number, place in enumerate(places)]


def asked(outlook: Outlook, ground: Site) -> Outlook:
    """What would become of a query that has a checkpoint, now that its sinks were asked; or why they were not."""
    query = outlook.query
    if not outlook.starts or outlook.position is None:
        return outlook
    writers = [writer for sink in query.sinks if (writer := make_writer(sink.connection)[0])]
    unasked = ""
    for writer, site in zip(
        writers, sites(ground, query, writers, checkpoint_of(ground.state, query.name)), strict=True
    ):
        try:
            writer.require_newest(site)
        except StateMismatch as error:
            return replace(outlook, verdict=REFUSED, error=error)
        except MillraceError as error:  # a Kafka that is not there
            unasked = error.message
    return replace(outlook, unasked=unasked)
