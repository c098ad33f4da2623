"""What of Kafka a replay covers: from which offsets to which."""

from __future__ import annotations

from collections.abc import Callable, Collection

from millrace.clients import topics
from millrace.clients.bounds import Places, begin_of, end_of, parse_bound
from millrace.clients.cluster import Cluster
from millrace.connectors.kafka import KafkaReader
from millrace.connectors.span import Offsets
from millrace.engine.replayed import streams_of
from millrace.engine.structured import reader_of
from millrace.errors import InvalidReplay
from millrace.pipeline.model import Pipeline, Source

_EVERYTHING = ("earliest", "latest")


def covered(
    pipeline: Pipeline, model: Pipeline, asked: tuple[str, str], cluster: Callable[[], Cluster]
) -> tuple[Offsets, Offsets]:
    """Where a replay begins and ends; of topics that the pipeline reads and the replay does not, the end only."""
    first, last = _bounds(cluster, _places(streams_of(model), cluster), asked)
    return _by_topic(first), _by_topic(last | _ends(_left(pipeline, model), cluster, last))


def _left(pipeline: Pipeline, model: Pipeline) -> list[KafkaReader]:
    """The readers of streams that lead to no sink of the replay."""
    read = {source.name for source in model.sources}
    readers = [reader_of(one) for one in pipeline.sources if one.name not in read and not one.static]
    return [one for one in readers if isinstance(one, KafkaReader)]


def _ends(readers: Collection[KafkaReader], cluster: Callable[[], Cluster], known: Places) -> Places:
    """Where a run of the generation begins with what the replay does without: not with the whole past."""
    found = {place for one in readers for place in one.places_now(cluster())} - known.keys()
    return end_of(cluster(), sorted(found), "latest", dict.fromkeys(found, 0)) if found else {}


def _places(sources: Collection[Source], cluster: Callable[[], Cluster]) -> list[tuple[str, int]]:
    """Every partition of Kafka that is read."""
    found: dict[tuple[str, int], None] = {}
    for source in sources:
        reader = reader_of(source)
        if isinstance(reader, KafkaReader):
            for name in reader.topics_now(cluster()):
                topics.require(cluster().connect(), name)
            found |= dict.fromkeys(reader.places_now(cluster()))
    return list(found)


def _bounds(
    cluster: Callable[[], Cluster], places: list[tuple[str, int]], asked: tuple[str, str]
) -> tuple[Places, Places]:
    start, end = map(parse_bound, asked)
    if places:
        first = begin_of(cluster(), places, start)
        last = end_of(cluster(), places, end, first)
        if asked != _EVERYTHING and all(last[place] <= first[place] for place in places):
            raise InvalidReplay(
                f"no record lies between {asked[0]} and {asked[1]}",
                hint="millrace kafka topics describe NAME shows the offsets that there are; times are those of records",
            )
        return first, last
    if asked != _EVERYTHING:
        raise InvalidReplay(
            "without a topic among its sources a replay reads the files that are there",
            hint="--from earliest, without --to",
        )
    return {}, {}


def _by_topic(found: Places) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(found.items()):
        made.setdefault(topic, {})[str(number)] = offset
    return made
