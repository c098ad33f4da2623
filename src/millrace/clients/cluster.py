"""Where a Kafka cluster is and how to speak to it; ours and an outside one are the same from here on."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from millrace.errors import (
    AccessDenied,
    FileUnusable,
    InvalidOption,
    KafkaFailed,
    KafkaUnreachable,
    MillraceError,
    Place,
)
from millrace.settings import KAFKA_TIMEOUT, VERBOSE

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_JAVA_NAMES = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file",
    "ssl.truststore.type": "ssl.ca.location, a PEM file",
    "ssl.keystore.type": "ssl.certificate.location and ssl.key.location",
}
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._SSL,
}
_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
}
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
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
    def at(cls, address: str, config: Path | None = None, timeout: float | None = None) -> Cluster:
        """The cluster at HOST:PORT[,…], with the properties of a file if one is named."""
        parts = [part.strip() for part in address.split(",")]
        for part in parts:
            found = _ADDRESS.fullmatch(part)
            if not found or not 0 < int(found[2]) < 65536:
                raise InvalidOption(
                    f"{part!r} is not a Kafka address", hint="write HOST:PORT, several separated by commas"
                )
        options = read_properties(config) if config else {}
        wait = KAFKA_TIMEOUT.value() if timeout is None else timeout
        return cls(",".join(parts), options, min(wait, _LONGEST_TIMEOUT))

    def config(self, **extra: Any) -> dict[str, Any]:
        """The configuration for a client of confluent-kafka; keys of `extra` use _ for the dot."""
        quiet = {} if VERBOSE.value() else {"log_level": 0, "logger": _SILENT}
        mine = {key.replace("_", "."): value for key, value in extra.items() if not key.endswith("_cb")}
        callbacks = {key: value for key, value in extra.items() if key.endswith("_cb")}
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "millrace",
            **quiet,
            **self.options,
            **mine,
            **callbacks,
        }

    def java_properties(self) -> dict[str, str]:
        """The same properties as Java's clients (Kafka's tools, Spark) write them."""
        mine = dict(self.options)
        if "sasl.mechanisms" in mine:  # librdkafka's own name for it
            mine["sasl.mechanism"] = mine.pop("sasl.mechanisms")
        user, password = mine.pop("sasl.username", ""), mine.pop("sasl.password", "")
        authority = mine.pop("ssl.ca.location", None)
        certificate, key = mine.pop("ssl.certificate.location", None), mine.pop("ssl.key.location", None)
        if user:
            scram = mine.get("sasl.mechanism", "PLAIN").startswith("SCRAM")
            module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
            mine["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module} required "
                f"username={_quoted(user)} password={_quoted(password)};"
            )
        if authority:
            mine |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
        if certificate and key:
            chain, secret = (Path(path).read_text("utf-8").replace("\n", " ") for path in (certificate, key))
            mine |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": secret}
        return mine

    def admin(self) -> AdminClient:
        """The client for administration, the same one each time; raises when a property is not one."""
        return self._link[0]

    @cached_property
    def _link(self) -> tuple[AdminClient, list[KafkaError]]:
        """A client and the errors that it has told: one for all, since each takes time to find the brokers."""
        seen: list[KafkaError] = []
        with self.speaking("open a connection"):
            return AdminClient(self.config(error_cb=seen.append, reconnect_backoff_max_ms=500)), seen

    def connect(self) -> ClusterMetadata:
        """Who is in the cluster and which topics it has; raises when nobody answers or we are refused."""
        admin, seen = self._link
        admin.poll(0)
        seen.clear()
        deadline = time.monotonic() + self.timeout
        while True:
            left = deadline - time.monotonic()
            try:
                return admin.list_topics(timeout=max(0.1, min(1.0, left)))
            except KafkaException as error:
                admin.poll(0)
                for problem in (*seen, error.args[0]):
                    if problem.code() in _DENIED or left <= 0:
                        raise self.error(problem, "connect") from None

    def speaking(self, doing: str) -> _Speaking:
        """A block in which Kafka's exceptions become ours; `doing` completes the words 'could not …'."""
        return _Speaking(self, doing)

    def error(self, problem: KafkaError, doing: str) -> MillraceError:
        """Our error for one of Kafka's."""
        code, text = problem.code(), problem.str()
        if code in _DENIED:
            return AccessDenied(
                f"the cluster at {self.bootstrap} refuses us: could not {doing}",
                why=_after_last_prefix(text),
                hint="check user, password, security.protocol and certificates in the file given by --kafka-config",
            )
        if code in _UNREACHABLE:
            return KafkaUnreachable(
                f"no broker answers at {self.bootstrap}: could not {doing}",
                why=_after_last_prefix(text),
                hint="check the address and security.protocol, and that the broker runs (millrace kafka status)",
            )
        if code in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
            return InvalidOption(
                f"could not {doing}: {text}",
                hint="look at the client properties in the file given by --kafka-config",
            )
        if code in _FENCED:
            return KafkaFailed(
                f"could not {doing}: another producer has taken over",
                why=text,
                hint="two producers use the same transactional id: give each its own",
            )
        return KafkaFailed(f"could not {doing}: {text}", why=problem.name())


class _Speaking:
    def __init__(self, cluster: Cluster, doing: str) -> None:
        self.cluster = cluster
        self.doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KafkaException):
            raise self.cluster.error(error.args[0], self.doing) from error


def read_properties(path: Path) -> dict[str, str]:
    """The client properties of a file: `key=value` lines, `#` comments, `${NAME}` from the environment."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnusable(f"cannot read the client properties in {path}", why=str(error)) from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        place = Place(str(path), number)
        if not equals:
            raise InvalidOption("a line of client properties has no '='", place=place, hint="write key=value")
        if key in _JAVA_NAMES:
            raise InvalidOption(
                f"{key} is a property of Java clients", place=place, hint=f"use {_JAVA_NAMES[key]} instead"
            )
        found[key] = _with_variables(value, place)
    return found


def _quoted(text: str) -> str:
    """Text as a JAAS configuration wants it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _with_variables(value: str, place: Place) -> str:
    return _VARIABLE.sub(lambda match: _from_environment(match[1], place), value)


def _from_environment(name: str, place: Place) -> str:
    if name not in os.environ:
        raise InvalidOption(f"the environment variable {name} is not set", place=place, hint=f"export {name}=…")
    return os.environ[name]


def _after_last_prefix(text: str) -> str:
    """librdkafka puts the broker's name before each reason; the reason is what is read."""
    return text.removeprefix("Local: ").strip()
