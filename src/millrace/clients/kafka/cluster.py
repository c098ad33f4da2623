"""Where a Kafka cluster is and how to speak to it; ours and an outside one are the same from here on.

Questions to the coordinators of groups: how long they are waited for is decided here, not by the client.

librdkafka has a fault (its issue 4605, still in 2.16). When the time of such a question is over while the coordinator
is away, the client frees the question and does not forget it. Once the coordinator is there again it goes on with what
is freed: the process ends with an abort, if nothing worse. So a question gets a time that is never over; whoever gives
up closes the client, and its questions with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from millrace.clients.kafka.security import completed_properties, for_java, is_access
from millrace.clients.kafka.security_diagnosis import access_denied
from millrace.clients.pool import Pool
from millrace.clients.properties import Notify, client_properties, tidy_addresses
from millrace.errors import AccessDenied, InvalidOption, KafkaFailed, KafkaUnreachable, MillraceError
from millrace.settings import KAFKA, KAFKA_TIMEOUT, VERBOSE

T = TypeVar("T")
Question = Callable[[AdminClient, float], dict[str, Future[T]]]
"""Asks, with a time limit for the client, for something of each of some groups."""

_NEVER = 3600.0
"""Seconds: the longest limit that the client takes."""
_LONGEST = 1200.0
"""Seconds after which we give up, however much time was asked for: well before the client would."""


class Coordinators:
    """A client that asks coordinators and does nothing else, so that it can be closed without harm to others."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._open = ExitStack()
        self._client = self._open.enter_context(AdminClient(config))

    def ask(self, question: Question[T], seconds: float) -> dict[str, Future[T]]:
        """Answers that are there, or have failed; raises when for so many seconds none comes.

        A client that has raised is closed. That it is closed, and not only left, matters: who keeps an exception
        keeps the frames that it came through, and what is in them.
        """
        try:
            asked = question(self._client, _NEVER)
            _await(asked.values(), min(seconds, _LONGEST))
        except BaseException:
            self._open.close()
            raise
        return asked


def _await(asked: Collection[Future[T]], seconds: float) -> None:
    deadline = time.monotonic() + _LONGEST
    late = set(asked)
    while late:
        come, late = wait(late, seconds)
        if late and (not come or time.monotonic() > deadline):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator does not answer"))


_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._SSL,
}
_SOON = 2.0
_VAGUE = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
_NOBODY = {KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._BAD_MSG}
_UNREACHABLE = {
    KafkaError._BAD_MSG,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
}
FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
REFUSED = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD}
"""What is said of a record that will never be taken, however often it is sent."""
_STAYS = {"_link", "_sound", "_coordinators"}
PREFIX = KAFKA.variable + "_"
"""MILLRACE_KAFKA_SASL_PASSWORD is the client property sasl.password."""
_LONGEST_TIMEOUT = 3600.0
_SILENT = logging.getLogger("millrace.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True)
class Cluster:
    """An address and the client properties that go with it."""

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = KAFKA_TIMEOUT.default

    @classmethod
    def at(
        cls,
        address: str,
        config: Path | None = None,
        timeout: float | None = None,
        *,
        environment: bool = False,
        notify: Notify = lambda _: None,
    ) -> Cluster:
        """Return the cluster at HOST:PORT[,…], with the properties of a file if one is named.

        Those of the `environment` win over it. `notify` gets a sentence when others can read a secret.
        """
        options = client_properties(config, PREFIX if environment else None, is_access, notify)
        wait = KAFKA_TIMEOUT.value() if timeout is None else timeout
        return cls(tidy_addresses(address, "Kafka"), options, min(wait, _LONGEST_TIMEOUT))

    def config(self, **extra: Any) -> dict[str, Any]:
        """The configuration for a client of confluent-kafka; keys of `extra` use _ for the dot."""
        quiet = {} if VERBOSE.value() else {"log_level": 0, "logger": _SILENT}
        mine = {key.replace("_", "."): value for key, value in extra.items() if not key.endswith("_cb")}
        callbacks = {key: value for key, value in extra.items() if key.endswith("_cb")}
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "millrace",
            "reconnect.backoff.ms": 10,  # half of it is waited before the first connection too; it grows by itself
            **quiet,
            **self._sound,
            **mine,
            **callbacks,
        }

    @property
    def key(self) -> tuple[object, ...]:
        """What tells its connections from those to another cluster, or of another user."""
        return (self.bootstrap, *sorted(self.options.items()))

    def java_properties(self) -> dict[str, str]:
        """The same properties as Java's clients (Kafka's tools, Spark) write them."""
        return for_java(self.options)

    @cached_property
    def _sound(self) -> dict[str, str]:
        return completed_properties(self.options)

    def admin(self) -> AdminClient:
        """The client for administration, the same one each time; raises when a property is not one.

        What the coordinators of groups know it must not be asked: `ask_coordinators` does that.
        """
        return self._link[0]

    def ask_coordinators(self, doing: str, question: Question[T]) -> dict[str, Future[T]]:
        """The answers of groups' coordinators, by group; raises when they do not come."""
        with self.translated_errors(doing), self._coordinators.borrow("", self._open_coordinators) as coordinators:
            return coordinators.ask(question, self.timeout)

    @cached_property
    def _coordinators(self) -> Pool[Coordinators]:
        return Pool(2)

    def _open_coordinators(self) -> Coordinators:
        return Coordinators(self.config(reconnect_backoff_max_ms=500))

    @cached_property
    def _link(self) -> tuple[AdminClient, list[KafkaError]]:
        """A client and the errors that it has told: one for all, since each takes time to find the brokers."""
        seen: list[KafkaError] = []
        with self.translated_errors("open a connection"):
            return AdminClient(self.config(error_cb=seen.append, reconnect_backoff_max_ms=500)), seen

    def __getstate__(self) -> dict[str, Any]:
        """It travels without its open connections, which cannot."""
        return {name: value for name, value in self.__dict__.items() if name not in _STAYS}

    def connect(self) -> ClusterMetadata:
        """Who is in the cluster and which topics it has; raises when nobody answers or we are refused."""
        again = "_link" in self.__dict__
        admin, seen = self._link
        # What was told before is of the past; but a new client may say at once, and only once, that it gets no token.
        if again:
            admin.poll(0)
            seen.clear()
        started = time.monotonic()
        while True:
            left = self.timeout - (time.monotonic() - started)
            try:
                found = admin.list_topics(timeout=max(0.1, min(1.0, left)))
                if found.brokers:
                    return found
                if left <= 0:
                    raise self._empty()
                time.sleep(0.05)  # one that was away for long, and is not let in again yet
            except KafkaException as error:
                admin.poll(0)
                problem = self._verdict([*seen, error.args[0]], time.monotonic() - started, left)
                if problem is not None:
                    raise self.error(problem, "connect") from None

    def _empty(self) -> KafkaUnreachable:
        return KafkaUnreachable(
            f"the cluster at {self.bootstrap} answers but names no broker: could not connect",
            why=f"no broker was let in within {self.timeout:g} s",
            hint="try again when a broker is up, see its log, or wait longer (MILLRACE_KAFKA_TIMEOUT)",
        )

    def _verdict(self, seen: list[KafkaError], waited: float, left: float) -> KafkaError | None:
        """The error to give up with, or None to try again: a refusal at once, an address where nobody is soon."""
        denied = next((problem for problem in seen if problem.code() in _DENIED), None)
        if denied:
            return denied
        hopeless = waited >= _SOON and any(problem.code() in _NOBODY for problem in seen)
        if left > 0 and not hopeless:
            return None
        # "All brokers are down" says less than what happened to each of them.
        return next((problem for problem in seen if problem.code() not in _VAGUE), seen[-1])

    def translated_errors(self, doing: str) -> _Speaking:
        """A block in which Kafka's exceptions become ours; `doing` completes the words 'could not …'."""
        return _Speaking(self, doing)

    def error(self, problem: KafkaError, doing: str) -> MillraceError:
        """Our error for one of Kafka's."""
        code, text = problem.code(), problem.str()
        denied = access_denied(text, self.bootstrap, self._sound, doing) if code in _DENIED | _UNREACHABLE else None
        if denied:
            return denied
        if code in _DENIED:
            return AccessDenied(
                f"the cluster at {self.bootstrap} refuses us: could not {doing}",
                why=_reason(text),
                hint="check user, password, security.protocol and certificates in the file given by --kafka-config",
            )
        if code in _UNREACHABLE:
            return KafkaUnreachable(
                f"no broker answers at {self.bootstrap}: could not {doing}",
                why=_reason(text),
                hint="check the address, that a broker runs there, whether it wants TLS or a password (--kafka-config)",
            )
        if code in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
            return InvalidOption(
                f"could not {doing}: {text}",
                hint="look at the client properties in the file given by --kafka-config",
            )
        if code in FENCED:
            return KafkaFailed(
                f"could not {doing}: another producer has taken over",
                why=text,
                hint="two producers use the same transactional id: give each its own",
            )
        return KafkaFailed(f"could not {doing}: {_reason(text)}", why=problem.name())


class _Speaking:
    def __init__(self, cluster: Cluster, doing: str) -> None:
        self.cluster = cluster
        self.doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KafkaException):
            raise self.cluster.error(error.args[0], self.doing) from error


def _reason(text: str) -> str:
    """librdkafka's words, without the mark that the error is its own."""
    return text.removeprefix("Local: ").strip()
