"""One run of a pipeline at a time, wherever its state folder is: a second run is refused before it writes.

- `RunLease` is membership in the consumer group `millrace.run/PIPELINE`, by which runs see each other.
- `RunLocks` checks the lease and the lock of the state folder together, as one `RunLock`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, KafkaException

from millrace.clients.kafka import consumer_groups
from millrace.clients.kafka.cluster import Cluster
from millrace.engine.checkpoints.state_dir import StateDir
from millrace.errors import KafkaFailed, KafkaUnreachable, MillraceError, StateMismatch

_SILENT = 6.0
"""Seconds after which Kafka takes a run for dead that does not say that it lives."""
_HEARTBEAT = 1.0
_SLEPT = _SILENT - 2 * _HEARTBEAT
"""Seconds without a look after which Kafka may have given us up: its last word of us may be older than our own."""
_POLL = 0.2
_PATIENCE = 30.0
_SOON = 3.0
_AWAY = 120.0
"""Seconds that a batch waits for Kafka, as the sink itself would."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while this process, or the whole machine, is asleep."""


def run_group(pipeline: str) -> str:
    """Return the consumer group of which a run of a pipeline is the only member."""
    return f"millrace.run/{pipeline}"


@dataclass(frozen=True, order=True)
class LeaseHolder:
    """A run, as it calls itself in its group."""

    since: int
    state: str
    host: str
    pid: str

    @classmethod
    def of(cls, client: str) -> LeaseHolder | None:
        """Read from a client's id; None when it is none of ours."""
        parts = client.split("/")
        return cls(int(parts[1]), *parts[2:]) if len(parts) == 5 and parts[1].isdecimal() else None

    @property
    def client(self) -> str:
        return "/".join(("millrace", str(self.since), self.state, self.host, self.pid))


class RunLease:
    """A member of the group `millrace.run/<pipeline>` for as long as the run lasts.

    It reads nothing: that it is there is what others see. A run that was killed is still there for some seconds; one
    of the same state folder is known to be dead, since its lock is ours. A run that has slept for so long that Kafka
    took it for dead (it hung, or its machine did) comes back as the newest one: another may have come in its place.
    """

    def __init__(self, cluster: Cluster, pipeline: str, state: str, topic: str) -> None:
        self._cluster, self._pipeline, self._topic = cluster, pipeline, topic
        self._group = run_group(pipeline)
        self._me = LeaseHolder(_now(), state, socket.gethostname(), str(os.getpid()))
        self._trouble: str | None = None
        self._let_in = False
        self._heard = time.clock_gettime(_CLOCK)
        """When we last looked whether we are still a member."""
        self._joined = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._stay, name="lease", daemon=True)

    def __enter__(self) -> RunLease:
        deadline = time.monotonic() + _SILENT + 1
        while (others := self._others()) and time.monotonic() < deadline:
            time.sleep(_POLL)  # one that was killed is still listed for some seconds
        self._require_alone(others)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_SILENT)

    def join(self) -> None:
        """Wait until others see us; of two that came at once, the later one raises.

        One that seems to be later gives way if it has seen us. If it stays, it has not: it was let in before we came,
        whatever its clock says.
        """
        if not self._is_member():
            self._others()  # raises when no broker answers
            self._wait(_PATIENCE)
        if not self._is_member():
            raise KafkaFailed(
                f"the run could not join the group {self._group!r}, by which a second one would see it",
                why=self._trouble,
                hint="may it use that group? guarantee: at-least-once does without",
            )
        others = self._others()
        self._require_alone([holder for holder in others if holder < self._me])
        deadline = time.monotonic() + 2 * _SILENT
        while others and not self._let_in and time.monotonic() < deadline:
            time.sleep(_POLL)
            others = self._others()
        if not self._let_in:
            self._require_alone(others)
        self._let_in = True

    def check(self) -> None:
        """Raise if another run may have the name by now; ask Kafka only if we were silent since the last time."""
        if not self._is_member() or not self._let_in:
            self._wait(_AWAY)  # a broker that is away for a while fails no batch
            self.join()

    def is_held(self) -> bool:
        """Return whether the name is ours alone at the end of a run; False if Kafka does not answer soon."""
        with suppress(MillraceError):
            return self._is_member() and self._let_in and not self._strangers(replace(self._cluster, timeout=_SOON))
        return False

    def _is_member(self) -> bool:
        return self._joined.is_set() and not self._lapsed()

    def _wait(self, seconds: float) -> None:
        """Wait until we are a member, at most for these seconds."""
        deadline = time.monotonic() + seconds
        while not self._is_member() and not self._stop.is_set() and time.monotonic() < deadline:
            time.sleep(_POLL / 4)

    def _others(self) -> list[LeaseHolder]:
        try:
            return self._strangers(self._cluster)
        except KafkaUnreachable:  # or a client that stays with a coordinator which is gone: another one asks now
            return self._strangers(self._cluster)

    def _strangers(self, cluster: Cluster) -> list[LeaseHolder]:
        holders = [LeaseHolder.of(member.client) for member in consumer_groups.members(cluster, self._group)]
        dead = (self._me.state, self._me.host)  # of our own folder on this machine: its lock is ours
        return [holder for holder in holders if holder and (holder.state, holder.host) != dead]

    def _require_alone(self, others: list[LeaseHolder]) -> None:
        if others:
            first = min(others)
            raise StateMismatch(
                f"pipeline {self._pipeline!r} runs already, with another state folder",
                why=f"its process is {first.pid} on {first.host}; both would write the same rows",
                hint="stop that one, or give this pipeline another name",
            )

    def _stay(self) -> None:
        while not self._stop.is_set():
            self._be_member()
            self._joined.clear()
            self._me = replace(self._me, since=_now())
            self._let_in = False  # whatever the clocks say: whoever came meanwhile, and stays, was let in before us

    def _lapsed(self) -> bool:
        """Whether we have slept, so that Kafka may have taken us for dead."""
        return time.clock_gettime(_CLOCK) - self._heard > _SLEPT

    def _be_member(self) -> None:
        """Until the end, or until we have slept. A cluster that was away is joined again by the client itself."""
        own = {
            "group.id": self._group,
            "client.id": self._me.client,
            "session.timeout.ms": round(_SILENT * 1000),
            "heartbeat.interval.ms": round(_HEARTBEAT * 1000),
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
        consumer = Consumer({**self._cluster.config(), **own})
        self._heard = time.clock_gettime(_CLOCK)
        consumer.subscribe([self._topic], on_assign=lambda *_: self._joined.set())
        while not self._stop.is_set():
            message = consumer.poll(_POLL)
            problem = message.error() if message is not None else None
            self._trouble = problem.str() if problem else self._trouble
            if self._lapsed():
                break
            self._heard = time.clock_gettime(_CLOCK)
        with suppress(KafkaException):  # a cluster that is gone takes us for dead by itself
            consumer.close()


def _now() -> int:
    return round(time.time() * 1000)


@dataclass(frozen=True)
class RunLocks:
    """The lock of a run: on its state folder and, where two runs would write twice, on its pipeline's name."""

    state: StateDir
    lease: RunLease | None = None

    def check(self) -> None:
        """Raise if another run may have taken over; ask others only where the last answer is too old."""
        self.state.check()
        if self.lease:
            self.lease.check()

    def check_cached(self) -> None:
        """Raise if another run is known to have taken over; ask nobody."""
        self.state.check_cached()

    def check_start(self) -> None:
        """Raise if another run has taken over; ask now, before the start of a query that must be the only writer."""
        if self.lease:
            self.lease.join()

    def is_name_held(self) -> bool:
        """Return whether the pipeline's name is still this run's alone; False if Kafka does not answer soon."""
        with suppress(MillraceError):
            self.check_cached()
            return self.lease is not None and self.lease.is_held()
        return False
