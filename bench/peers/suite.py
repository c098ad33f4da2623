"""What is run: the jobs with their sizes, quick and in full, and who takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peers.contract import Job, Peer
from peers.each.bytewax import Bytewax
from peers.each.flink import Flink
from peers.each.floor import BareConsumer, HandWritten
from peers.each.kafka_streams import KafkaStreams
from peers.each.ours import ON_DISK, PARTS, Millrace
from peers.each.pathway import Pathway
from peers.each.pyspark import PlainPySpark, TunedPySpark
from peers.each.quix import Quix
from peers.jobs.ads import Ads
from peers.jobs.latency import Latency, filtered, keyed, stateless, windowed
from peers.jobs.once import Copied
from peers.jobs.state import State
from peers.jobs.words import Words

PEERS: tuple[Peer, ...] = (
    Millrace(),
    PlainPySpark(),
    TunedPySpark(),
    Flink(),
    KafkaStreams(),
    Quix(),
    Bytewax(),
    Pathway(),
    BareConsumer(),
    HandWritten(),
)
STATEFUL = {"Millrace", "tuned PySpark", "Flink", "Kafka Streams"}
"""Who takes part in S: the others hold no such state, or take minutes for it."""


@dataclass(frozen=True)
class CatchUp:
    """A job over records that are there; a slow peer gets its share of them, and a rate is a rate."""

    letter: str
    job: Callable[[int], Job]
    size: int
    peers: tuple[Peer, ...]

    def made(self, peer: Peer) -> Job:
        """The job in the size for a peer."""
        return self.job(int(self.size * peer.share))


@dataclass(frozen=True)
class Live:
    """A job over records that come."""

    letter: str
    job: Callable[[], Latency]
    warm: float
    seconds: float
    peers: tuple[Peer, ...]


Case = CatchUp | Live


def cases(quick: bool, scale: float = 1.0) -> Iterator[Case]:
    """Everything, in the order of the tables."""

    def sized(short: int, full: int) -> int:
        return int((short if quick else full) * scale)

    yield CatchUp("W", Words, sized(300_000, 1_500_000), _able("words"))
    yield CatchUp("A", Ads, sized(500_000, 1_500_000), _able("ads"))
    yield CatchUp("E", Copied, sized(300_000, 1_000_000), _able("once"))
    for letter, job in (("L1", stateless), ("L2", keyed)):
        yield Live(letter, job, *((20.0, 10.0) if quick else (20.0, 30.0)), _able(job.__name__))
    for letter, job in (("M1", windowed), ("M2", filtered)):
        yield Live(letter, job, *((30.0, 30.0) if quick else (60.0, 180.0)), _able(job.__name__))
    for keys in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 5_000_000):
        able = (peer for peer in _able("state") if peer.name in STATEFUL)
        yield CatchUp("S", State, keys, (*able, ON_DISK))
    yield CatchUp("B", Ads, sized(500_000, 1_500_000), PARTS)


def _able(job: str) -> tuple[Peer, ...]:
    return tuple(peer for peer in PEERS if job in peer.jobs)
