"""Cassandra as a client sees it: its address, who we are there, one session a process, its errors in our words."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from millrace.clients.addresses import points, tidy
from millrace.clients.properties import Tell, environment_properties, read_properties
from millrace.clients.refusals import explained
from millrace.errors import FileUnusable, InvalidOption, did_you_mean
from millrace.settings import CASSANDRA, CASSANDRA_TIMEOUT

PORT = 9042
PREFIX = CASSANDRA.variable + "_"
"""MILLRACE_CASSANDRA_TLS_CA is the client property tls.ca."""
_OPTIONS = ("user", "password", "datacenter", "tls", "tls.ca", "tls.certificate", "tls.key", "tls.hostname")
_NO = ("0", "no", "false", "off")
_PROTOCOL = 4
"""The newest that every Cassandra since 2.2 speaks; the next one wraps and checks every frame in Python."""
_OPEN: dict[tuple[object, ...], Any] = {}
_OPENING = threading.Lock()
logging.getLogger("cassandra").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Cassandra:
    """An address and what is needed to be let in."""

    address: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = CASSANDRA_TIMEOUT.default

    @classmethod
    def at(
        cls,
        address: str,
        config: Path | None = None,
        timeout: float | None = None,
        *,
        environment: bool = False,
        tell: Tell = lambda _: None,
    ) -> Cassandra:
        """The cluster at HOST[:PORT][,…], with the properties of a file if one is named.

        Those of the `environment` win over it. `tell` takes a sentence when others can read a secret.
        """
        options = read_properties(config, tell) if config else {}
        if environment:
            options |= environment_properties(PREFIX, _OPTIONS.__contains__, tell)
        wait = CASSANDRA_TIMEOUT.value() if timeout is None else timeout
        return cls(tidy(address, "Cassandra", PORT), _sound(options), wait)

    @property
    def points(self) -> list[tuple[str, int]]:
        """The hosts and ports to begin with."""
        return points(self.address, "Cassandra", PORT)

    def session(self) -> Any:
        """The session of this process, opened once; one that a parent of this process opened is not used."""
        key = (os.getpid(), self.address, tuple(sorted(self.options.items())), self.timeout)
        with _OPENING:
            if key not in _OPEN:
                with self.speaking("connect"):
                    _OPEN[key] = self._opened()
            return _OPEN[key]

    def execute(self, statement: str, parameters: Sequence[object] = (), doing: str = "ask") -> list[Any]:
        """The rows of one statement, as tuples."""
        with self.speaking(doing):
            prepared = self.session().prepare(statement) if parameters else statement
            return list(self.session().execute(prepared, parameters or None))

    def close(self) -> None:
        """Close the session of this process, if there is one."""
        mine = (os.getpid(), self.address)
        with _OPENING:
            gone = [_OPEN.pop(key) for key in list(_OPEN) if key[:2] == mine]
        for session in gone:
            session.cluster.shutdown()

    @contextlib.contextmanager
    def speaking(self, doing: str) -> Iterator[None]:
        """A block in which the driver's exceptions become ours; `doing` completes the words 'could not …'."""
        try:
            yield
        except Exception as error:
            said = explained(error, self.address, doing, tls=self._wants_tls)
            if said is error:
                raise
            raise said from error

    def _opened(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about event loops that are not used here
            from cassandra import ConsistencyLevel
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import ExponentialReconnectionPolicy, FallthroughRetryPolicy
        from cassandra.query import tuple_factory

        usual = ExecutionProfile(
            load_balancing_policy=self._routes(),
            retry_policy=FallthroughRetryPolicy(),  # who asks decides what is asked again
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            request_timeout=self.timeout,
            row_factory=tuple_factory,
        )
        cluster = Cluster(
            self.points,
            execution_profiles={EXEC_PROFILE_DEFAULT: usual},
            auth_provider=self._login(),
            ssl_context=self._tls,
            protocol_version=_PROTOCOL,
            connect_timeout=self.timeout,
            control_connection_timeout=self.timeout,
            reconnection_policy=ExponentialReconnectionPolicy(0.5, 4.0),
            application_name="millrace",
        )
        try:
            session = cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise
        session.use_client_timestamp = False  # a statement that wants a timestamp says so
        return session

    def _routes(self) -> Any:
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy

        return TokenAwarePolicy(DCAwareRoundRobinPolicy(self.options.get("datacenter", "")))

    def _login(self) -> Any:
        from cassandra.auth import PlainTextAuthProvider

        user = self.options.get("user")
        return PlainTextAuthProvider(user, self.options.get("password", "")) if user else None

    @property
    def _wants_tls(self) -> bool:
        wanted = self.options.get("tls", "").lower()
        return wanted not in _NO[1:] and bool(wanted or any(name.startswith("tls.") for name in self.options))

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        chosen = self.options
        if not self._wants_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=chosen.get("tls.ca"))
            if chosen.get("tls.hostname", "yes").lower() in _NO:
                context.check_hostname = False
            if "tls.certificate" in chosen:
                context.load_cert_chain(chosen["tls.certificate"], chosen.get("tls.key"))
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(chosen[name] for name in ("tls.ca", "tls.certificate", "tls.key") if name in chosen)
            raise FileUnusable(f"the certificates for Cassandra cannot be used: {files}", why=str(error)) from None
        return context

    def __getstate__(self) -> dict[str, object]:
        """What goes to Spark's workers: not what was made here."""
        return {"address": self.address, "options": dict(self.options), "timeout": self.timeout}


def _sound(options: dict[str, str]) -> dict[str, str]:
    for name in options:
        if name not in _OPTIONS:
            raise InvalidOption(f"{name!r} is no client property for Cassandra", hint=did_you_mean(name, _OPTIONS))
    if ("user" in options) != ("password" in options):
        raise InvalidOption("user and password for Cassandra go together", hint="write password=${NAME}")
    return options
