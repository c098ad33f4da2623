"""kafkaParams as programs wrote them for PySpark 2.4, translated for today's Kafka clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.security import for_java, is_access
from millrace.clients.properties import tidy_addresses
from millrace.errors import InvalidOption
from millrace.limited_files import read_limited_text
from millrace.pipeline.secret import Secret, is_secret

_TIMEOUT_S = 5.0
_BROKERS = ("metadata.broker.list", "bootstrap.servers")
_RESET = {"smallest": "earliest", "earliest": "earliest", "largest": "latest", "latest": "latest"}
_RENAMED = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
}
_IGNORED = re.compile(
    r"zookeeper\.|auto\.(commit|offset)\.|enable\.auto\.commit|offsets\.|rebalance\.|consumer\.|group\.id|refresh\."
    r"|num\.|queued\.|dual\.|partition\.assignment\.|exclude\.|(key|value)\.deserializer|interceptor\.|socket\.timeout"
)
"""Parameters without a meaning today, and those that the driver decides itself."""
_JAAS = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')
_JAVA_ONLY = re.compile(r"sasl\.jaas\.config|ssl\.(truststore|keystore)\.|sasl\.login\.")
_ENDPOINT_CHECK = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True)
class Parameters:
    """The brokers, the credentials, and where reading starts. It is pickled into Spark's checkpoint."""

    bootstrap: str
    reset: str
    """`earliest` or `latest`."""
    given: Mapping[str, str]
    """Client properties, with the names of Java's client or of librdkafka."""

    @classmethod
    def of(cls, params: Mapping[str, object], address: str | None = None) -> Parameters:
        """Return the parameters of a program; `address` replaces the brokers among them."""
        texts = {str(name): str(value) for name, value in params.items()}
        servers = address or next((texts[name] for name in _BROKERS if name in texts), None)
        if not servers:
            hint = '{"bootstrap.servers": "HOST:PORT"} or {"metadata.broker.list": "HOST:PORT"}'
            raise InvalidOption("kafkaParams names no broker", hint=hint)
        reset = texts.get("auto.offset.reset", "latest")
        if reset not in _RESET:
            hint = "smallest (earliest) or largest (latest)"
            raise InvalidOption(f"auto.offset.reset cannot be {reset!r}", hint=hint)
        renamed = {_RENAMED.get(name, name): value for name, value in texts.items() if name not in _BROKERS}
        kept = {name: value for name, value in renamed.items() if not _IGNORED.match(name)}
        given = {name: Secret(value) if is_secret(name) else value for name, value in kept.items()}
        return cls(tidy_addresses(servers, "Kafka"), _RESET[reset], given)

    @property
    def committed(self) -> bool:
        """Whether records of open and aborted transactions are skipped."""
        return self.given.get("isolation.level") == "read_committed"

    def cluster(self) -> Cluster:
        """Return the cluster for the driver's own requests."""
        access = {name: value for name, value in self.given.items() if is_access(name)}
        return Cluster(self.bootstrap, _native(access) if _has_java_names(access) else access, _TIMEOUT_S)

    def for_spark(self) -> dict[str, str]:
        """Return the options with which Spark's own reader connects to the same brokers."""
        access = {name: value for name, value in self.given.items() if is_access(name)}
        properties = {name: value for name, value in self.given.items() if not is_access(name)}
        properties |= access if _has_java_names(access) else for_java(access)
        properties["bootstrap.servers"] = self.bootstrap
        return {f"kafka.{name}": value for name, value in properties.items()}


def _has_java_names(access: Mapping[str, str]) -> bool:
    return any(_JAVA_ONLY.match(name) for name in access)


def _native(access: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a Java client with librdkafka's names."""
    native = {name: value for name, value in access.items() if not _JAVA_ONLY.match(name)}
    if line := access.get("sasl.jaas.config"):
        login = {name: Secret((quoted or bare).replace('\\"', '"')) for name, quoted, bare in _JAAS.findall(line)}
        if set(login) != {"username", "password"}:
            hint = "PLAIN and SCRAM can be read from it; else use librdkafka's names, see docs/security.md"
            raise InvalidOption("sasl.jaas.config has no username and password", hint=hint)
        native |= {f"sasl.{name}": value for name, value in login.items()}
    native |= _authority(access) | _certificate(access)
    if native.get(_ENDPOINT_CHECK) == "":
        native[_ENDPOINT_CHECK] = "none"
    return native


def _authority(access: Mapping[str, str]) -> dict[str, str]:
    if pem := access.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": pem}
    if not (location := access.get("ssl.truststore.location")):
        return {}
    _require_pem("truststore", access)
    return {"ssl.ca.location": location}


def _certificate(access: Mapping[str, str]) -> dict[str, str]:
    if chain := access.get("ssl.keystore.certificate.chain"):
        return {"ssl.certificate.pem": chain, "ssl.key.pem": Secret(access.get("ssl.keystore.key", ""))}
    if not (location := access.get("ssl.keystore.location")):
        return {}
    if access.get("ssl.keystore.type", "").upper() == "PKCS12":
        return {"ssl.keystore.location": location, "ssl.keystore.password": access.get("ssl.keystore.password", "")}
    _require_pem("keystore", access)
    text = read_limited_text(location)
    return {"ssl.certificate.pem": text, "ssl.key.pem": Secret(text)}


def _require_pem(store: str, access: Mapping[str, str]) -> None:
    if access.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
        hint = f"ssl.{store}.type=PEM and a PEM file, or librdkafka's names; keytool and openssl convert them"
        raise InvalidOption(f"the driver cannot read a {store} in Java's own format", hint=hint)
