"""Cassandra as a client sees it.

- `Cassandra`: address, credentials, one session a process.
- `explain_refusal`, `refusal_reason`: what the driver raises, as an error of ours; `is_transient`: whether it may pass.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from millrace.clients.kafka.security_diagnosis import tls_problem
from millrace.clients.properties import Notify, client_properties, host_ports, tidy_addresses
from millrace.errors import (
    CassandraDenied,
    CassandraFailed,
    CassandraUnreachable,
    FileUnusable,
    InvalidCql,
    InvalidOption,
    InvalidTable,
    MillraceError,
    RowRefused,
    UnknownTable,
    did_you_mean,
)
from millrace.settings import CASSANDRA, CASSANDRA_TIMEOUT

_QUOTED = re.compile(r'message="(.*)"\s*$', re.DOTALL)
_UNKNOWN = re.compile(r"keyspace .* does not exist|unconfigured table|table .* does not exist", re.IGNORECASE)
_COLUMN = re.compile(r"undefined column name|unknown identifier|undefined name", re.IGNORECASE)
_TOO_LARGE = re.compile(r"too large|larger than|key may not be empty|exceeds", re.IGNORECASE)
_LOGIN = "check user and password in the file given by --cassandra-config"
_DRIVER_ERRORS = {"DriverException", "NoHostAvailable", "ErrorMessage", "ConnectionException"}


def explain_refusal(error: BaseException, address: str, doing: str, *, tls: bool = False) -> MillraceError:
    """Our error for one of the driver's; any other exception is raised again as it is. `tls`: whether we speak it."""
    if isinstance(error, MillraceError):
        return error
    names = _class_names(error)
    why = refusal_reason(error)
    if not names & _DRIVER_ERRORS:
        raise error
    if denied := _denied(names, why, address, doing):
        return denied
    if names & {"InvalidRequest", "SyntaxException", "ConfigurationException", "AlreadyExists"}:
        return _refused(why, doing)
    if names & {"NoHostAvailable", "OperationTimedOut", "UnresolvableContactPoints", "ConnectionException"}:
        if doing == "connect" and not tls and tls_problem(_first(address), {}):
            hint = "set tls=yes, or tls.ca=FILE.pem, in the file given by --cassandra-config"
            return CassandraDenied(f"the Cassandra at {address} wants TLS: could not {doing}", why=why, hint=hint)
        hint = "check the address, that Cassandra runs there, and whether it wants TLS (--cassandra-config)"
        return CassandraUnreachable(f"no Cassandra answers at {address}: could not {doing}", why=why, hint=hint)
    return CassandraFailed(f"Cassandra could not {doing}", why=why)


def _first(address: str) -> str:
    host = address.partition(",")[0]
    return host if re.search(r":\d+$", host) else f"{host}:{PORT}"


def is_transient(error: BaseException) -> bool:
    """Whether the same may work in a moment: a node that is away, too busy or too slow."""
    names = _class_names(error)
    lasting = {"RequestValidationException", "AuthenticationFailed", "SyntaxException", "CertificateError"}
    if names & {*lasting, "SSLCertVerificationError"} or "[SSL:" in refusal_reason(error):
        return False
    return bool(names & {*_DRIVER_ERRORS, "OSError"})


def refusal_reason(error: BaseException) -> str:
    """The driver's words without its frame around them."""
    texts = list(dict.fromkeys(map(_message, _roots(error))))
    return "; ".join(filter(None, texts[:3])) or type(error).__name__


def _denied(names: set[str], why: str, address: str, doing: str) -> CassandraDenied | None:
    # The driver makes another error of it, with the old one's words.
    if names & {"SSLCertVerificationError", "SSLError", "CertificateError"} or "[SSL:" in why:
        what, hint = next(texts for pattern, *texts in _TLS if re.search(pattern, why, re.IGNORECASE))
        parts = [_OPENSSL_CODES.sub("", part).strip() for part in why.split("; ")]
        bare = "; ".join(dict.fromkeys(filter(None, parts)))
        return CassandraDenied(f"{what.format(address)}: could not {doing}", why=bare, hint=hint)
    if names & {"AuthenticationFailed", "Unauthorized"} or "Remote end requires authentication" in why:
        return CassandraDenied(f"the Cassandra at {address} refuses us: could not {doing}", why=why, hint=_LOGIN)
    return None


_OPENSSL_CODES = re.compile(r"\[SSL[^\]]*\] ?| ?\(_ssl\.c:\d+\)|^\[Errno \d+\] ")
_TLS = (
    (
        "expired|not yet valid",
        "the certificate of the Cassandra at {} is not valid now",
        "renew it there; or is the clock of this machine wrong?",
    ),
    (
        "mismatch|doesn't match",
        "the certificate of the Cassandra at {} is that of another host",
        "tls.hostname=no in the file given by --cassandra-config accepts it",
    ),
    (
        "self.signed|issuer|unknown authority",
        "the certificate of the Cassandra at {} is of an authority that is not trusted",
        "give the authority's PEM file as tls.ca in the file given by --cassandra-config",
    ),
    (
        "wrong.version.number|record layer",
        "the Cassandra at {} speaks no TLS",
        "leave tls… out of the file given by --cassandra-config",
    ),
    (
        "alert",
        "the Cassandra at {} does not accept our certificate, or wants one",
        "check tls.certificate and tls.key in the file given by --cassandra-config",
    ),
    (
        "",
        "TLS with the Cassandra at {} failed",
        "check tls.ca, tls.certificate and tls.hostname in the file given by --cassandra-config",
    ),
)
"""What OpenSSL says, what that means, and what to do; the last one is for all else."""


def _refused(why: str, doing: str) -> MillraceError:
    if _UNKNOWN.search(why):
        hint = "say create: true on the sink, or look with millrace cassandra cql 'DESCRIBE TABLES'"
        return UnknownTable(f"could not {doing}: {why}", hint=hint)
    if _COLUMN.search(why):
        return InvalidTable(f"could not {doing}: {why}")
    if _TOO_LARGE.search(why):
        return RowRefused(f"could not {doing}: {why}", hint="leave such rows out, or make their values smaller")
    return InvalidCql(f"could not {doing}: {why}")


def _roots(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it says happened at each host."""
    yield error
    by_host = getattr(error, "errors", None)
    for host_error in by_host.values() if isinstance(by_host, dict) else ():
        if isinstance(host_error, BaseException):
            yield from _roots(host_error)
    for cause in (error.__cause__, error.__context__):
        if isinstance(cause, OSError):
            yield cause


def _class_names(error: BaseException) -> set[str]:
    """The names of the classes of the error and of its roots: the driver is not imported for them."""
    return {kind.__name__ for root in _roots(error) for kind in type(root).__mro__}


def _message(error: BaseException) -> str:
    if type(error).__name__ == "NoHostAvailable":
        return "" if getattr(error, "errors", None) else "every node is away"
    text = str(getattr(error, "message", "") or error)
    quoted = _QUOTED.search(text)
    return " ".join((quoted[1] if quoted else text).split())


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
        notify: Notify = lambda _: None,
    ) -> Cassandra:
        """Return the cluster at HOST[:PORT][,…], with the properties of a file if one is named.

        Those of the `environment` win over it. `notify` gets a sentence when others can read a secret.
        """
        options = client_properties(config, PREFIX if environment else None, _OPTIONS.__contains__, notify)
        wait = CASSANDRA_TIMEOUT.value() if timeout is None else timeout
        return cls(tidy_addresses(address, "Cassandra", PORT), _sound(options), wait)

    @property
    def points(self) -> list[tuple[str, int]]:
        """The hosts and ports to begin with."""
        return host_ports(self.address, "Cassandra", PORT)

    def session(self) -> Any:
        """The session of this process, opened once; one that a parent of this process opened is not used."""
        key = (os.getpid(), self.address, tuple(sorted(self.options.items())), self.timeout)
        with _OPENING:
            if key not in _OPEN:
                with self.translated_errors("connect"):
                    _OPEN[key] = self._opened()
            return _OPEN[key]

    def execute(self, statement: str, parameters: Sequence[object] = (), doing: str = "ask") -> list[Any]:
        """The rows of one statement, as tuples."""
        with self.translated_errors(doing):
            prepared = self.session().prepare(statement) if parameters else statement
            return list(self.session().execute(prepared, parameters or None))

    def close(self) -> None:
        """Close the session of this process, if there is one."""
        mine = (os.getpid(), self.address)
        with _OPENING:
            sessions = [_OPEN.pop(key) for key in list(_OPEN) if key[:2] == mine]
        for session in sessions:
            session.cluster.shutdown()

    @contextlib.contextmanager
    def translated_errors(self, doing: str) -> Iterator[None]:
        """A block in which the driver's exceptions become ours; `doing` completes the words 'could not …'."""
        try:
            yield
        except Exception as error:
            refusal = explain_refusal(error, self.address, doing, tls=self._wants_tls)
            if refusal is error:
                raise
            raise refusal from error

    def _opened(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about event loops that are not used here
            from cassandra import ConsistencyLevel
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.policies import (
            DCAwareRoundRobinPolicy,
            ExponentialReconnectionPolicy,
            FallthroughRetryPolicy,
            TokenAwarePolicy,
        )
        from cassandra.query import tuple_factory

        user = self.options.get("user")
        usual = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(self.options.get("datacenter", ""))),
            retry_policy=FallthroughRetryPolicy(),  # who asks decides what is asked again
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            request_timeout=self.timeout,
            row_factory=tuple_factory,
        )
        cluster = Cluster(
            self.points,
            execution_profiles={EXEC_PROFILE_DEFAULT: usual},
            auth_provider=PlainTextAuthProvider(user, self.options.get("password", "")) if user else None,
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
