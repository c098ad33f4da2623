"""A Kafka cluster: its address, the properties of its clients, and its errors in our words.

- `Cluster` makes the configuration of clients, connects, and translates errors of Kafka.
- `Coordinators` sends requests to the coordinators of groups, with timeouts of our own.

librdkafka has a bug (its issue 4605, still in 2.16): when such a request times out while the coordinator is away, the
client frees the request but still uses it once the coordinator is back, and the process aborts. So requests have no
timeout for the client; at our timeout the client is closed, and its requests with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
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
"""Sends a request for each of some groups, with a timeout of the client."""

_NO_TIMEOUT_S = 3600.0
"""The longest timeout that the client accepts."""
_MAX_WAIT_S = 1200.0
"""The longest timeout of our own: well before that of the client."""


class Coordinators:
    """A client only for requests to coordinators, so that closing it affects nothing else."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._open = ExitStack()
        self._client = self._open.enter_context(AdminClient(config))

    def ask(self, question: Question[T], seconds: float) -> dict[str, Future[T]]:
        """Return the answers, or their errors; raise KafkaException if none comes for some seconds.

        The client is closed after an error. It must be closed, not only dropped: the frames of an exception that is
        kept would keep it alive.
        """
        try:
            asked = question(self._client, _NO_TIMEOUT_S)
            deadline = time.monotonic() + _MAX_WAIT_S
            late = set(asked.values())
            while late:
                done, late = wait(late, min(seconds, _MAX_WAIT_S))
                if late and (not done or time.monotonic() > deadline):
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator does not answer"))
        except BaseException:
            self._open.close()
            raise
        return asked


_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._SSL,
}
_MIN_RETRY_S = 2.0
_UNSPECIFIC = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
_NO_BROKER = {KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._BAD_MSG}
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
"""Errors of a record that a retry cannot deliver."""
_UNPICKLED = {"_admin_client", "_properties", "_coordinators"}
PREFIX = KAFKA.variable + "_"
"""MILLRACE_KAFKA_SASL_PASSWORD is the client property sasl.password."""
_MAX_TIMEOUT_S = 3600.0
_SILENT = logging.getLogger("millrace.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True)
class Cluster:
    """An address and the client properties for it."""

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
        return cls(tidy_addresses(address, "Kafka"), options, min(wait, _MAX_TIMEOUT_S))

    def config(self, **extra: Any) -> dict[str, Any]:
        """Return the configuration for a client of confluent-kafka; keys of `extra` use _ for the dot."""
        quiet = {} if VERBOSE.value() else {"log_level": 0, "logger": _SILENT}
        own = {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in extra.items()}
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "millrace",
            "reconnect.backoff.ms": 10,  # half of it passes before the first connection too; it grows by itself
            **quiet,
            **self._properties,
            **own,
        }

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies connections to this cluster with these properties."""
        return (self.bootstrap, *sorted(self.options.items()))

    def java_properties(self) -> dict[str, str]:
        """Return the same properties for Java's clients (Kafka's tools, Spark)."""
        return for_java(self.options)

    @cached_property
    def _properties(self) -> dict[str, str]:
        return completed_properties(self.options)

    def admin(self) -> AdminClient:
        """Return the admin client, the same one each time; raise InvalidOption if a property is not valid.

        Requests to the coordinators of groups need `ask_coordinators`.
        """
        return self._admin_client[0]

    def ask_coordinators(self, doing: str, question: Question[T]) -> dict[str, Future[T]]:
        """Return the answers of coordinators by group; raise KafkaUnreachable at the timeout."""
        with (
            self.translated_errors(doing),
            self._coordinators.borrow("", lambda: Coordinators(self.config(reconnect_backoff_max_ms=500))) as client,
        ):
            return client.ask(question, self.timeout)

    @cached_property
    def _coordinators(self) -> Pool[Coordinators]:
        return Pool(2)

    @cached_property
    def _admin_client(self) -> tuple[AdminClient, list[KafkaError]]:
        """A client and its errors: one for all uses, since a new one takes time to find the brokers."""
        errors: list[KafkaError] = []
        with self.translated_errors("open a connection"):
            return AdminClient(self.config(error_cb=errors.append, reconnect_backoff_max_ms=500)), errors

    def __getstate__(self) -> dict[str, Any]:
        """Leave open connections out, which cannot be pickled."""
        return {name: value for name, value in self.__dict__.items() if name not in _UNPICKLED}

    def connect(self) -> ClusterMetadata:
        """Return the brokers and topics; raise KafkaUnreachable or AccessDenied if there is no connection."""
        again = "_admin_client" in self.__dict__
        admin, errors = self._admin_client
        # Old errors do not count; but a new client may report at once, and only once, that it gets no token.
        if again:
            admin.poll(0)
            errors.clear()
        started = time.monotonic()
        while True:
            left = self.timeout - (time.monotonic() - started)
            try:
                metadata = admin.list_topics(timeout=max(0.1, min(1.0, left)))
                if metadata.brokers:
                    return metadata
                if left <= 0:
                    raise KafkaUnreachable(
                        f"the cluster at {self.bootstrap} answers but names no broker: could not connect",
                        why=f"no broker has joined within {self.timeout:g} s",
                        hint="try again when a broker runs, see its log, or raise MILLRACE_KAFKA_TIMEOUT",
                    )
                time.sleep(0.05)  # a broker that was away for long has not joined the cluster again yet
            except KafkaException as error:
                admin.poll(0)
                problem = self._final_error([*errors, error.args[0]], time.monotonic() - started, left)
                if problem is not None:
                    raise self.error(problem, "connect") from None

    def _final_error(self, errors: list[KafkaError], waited: float, left: float) -> KafkaError | None:
        """Return the error to raise, or None to retry: a denial is raised at once, a wrong address soon."""
        if denied := next((problem for problem in errors if problem.code() in _DENIED), None):
            return denied
        hopeless = waited >= _MIN_RETRY_S and any(problem.code() in _NO_BROKER for problem in errors)
        if left > 0 and not hopeless:
            return None
        # "All brokers are down" says less than what happened to each of them.
        return next((problem for problem in errors if problem.code() not in _UNSPECIFIC), errors[-1])

    @contextmanager
    def translated_errors(self, doing: str) -> Iterator[None]:
        """Translate Kafka's exceptions that a block raises; `doing` completes the words 'could not …'."""
        try:
            yield
        except KafkaException as error:
            raise self.error(error.args[0], doing) from error

    def error(self, problem: KafkaError, doing: str) -> MillraceError:
        """Return our error for one of Kafka's."""
        code, text = problem.code(), problem.str()
        reason = text.removeprefix("Local: ").strip()  # librdkafka's mark for its own errors
        about_access = code in _DENIED | _UNREACHABLE
        if about_access and (denied := access_denied(text, self.bootstrap, self._properties, doing)):
            return denied
        if code in _DENIED:
            hint = "check user, password, security.protocol and certificates in the file given by --kafka-config"
            return AccessDenied(f"the cluster at {self.bootstrap} refuses us: could not {doing}", why=reason, hint=hint)
        if code in _UNREACHABLE:
            hint = "check the address, that a broker runs there, whether it wants TLS or a password (--kafka-config)"
            return KafkaUnreachable(f"no broker answers at {self.bootstrap}: could not {doing}", why=reason, hint=hint)
        if code in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
            hint = "check the client properties in the file given by --kafka-config"
            return InvalidOption(f"could not {doing}: {text}", hint=hint)
        if code in FENCED:
            hint = "two producers use the same transactional id: give each its own"
            return KafkaFailed(f"could not {doing}: another producer has fenced this one", why=text, hint=hint)
        return KafkaFailed(f"could not {doing}: {reason}", why=problem.name())
