"""kafkaParams as programs of the era wrote them, said again for today's clients."""

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

_TIMEOUT = 5.0
_BROKERS = ("metadata.broker.list", "bootstrap.servers")
_RESET = {"smallest": "earliest", "earliest": "earliest", "largest": "latest", "latest": "latest"}
_RENAMED = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
}
_OURS = re.compile(
    r"zookeeper\.|auto\.(commit|offset)\.|enable\.auto\.commit|offsets\.|rebalance\.|consumer\.|group\.id|refresh\."
    r"|num\.|queued\.|dual\.|partition\.assignment\.|exclude\.|(key|value)\.deserializer|interceptor\.|socket\.timeout"
)
"""Names that mean nothing any more, or that the driver decides itself."""
_JAAS = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')
_JAVA_ONLY = re.compile(r"sasl\.jaas\.config|ssl\.(truststore|keystore)\.|sasl\.login\.")
_PLAIN = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True)
class Parameters:
    """Where the brokers are, how one is let in, and where reading begins."""

    bootstrap: str
    reset: str
    """`earliest` or `latest`."""
    given: Mapping[str, str]
    """The properties of clients, in Java's words or in librdkafka's."""

    @classmethod
    def of(cls, params: Mapping[str, object], address: str | None = None) -> Parameters:
        """What a program says; `address` wins over what the parameters have."""
        texts = {str(name): str(value) for name, value in params.items()}
        servers = address or next((texts[name] for name in _BROKERS if name in texts), None)
        if not servers:
            hint = '{"bootstrap.servers": "HOST:PORT"} or {"metadata.broker.list": "HOST:PORT"}'
            raise InvalidOption("kafkaParams names no broker", hint=hint)
        said = texts.get("auto.offset.reset", "latest")
        if said not in _RESET:
            hint = "smallest (earliest) or largest (latest)"
            raise InvalidOption(f"auto.offset.reset cannot be {said!r}", hint=hint)
        kept = {_RENAMED.get(name, name): value for name, value in texts.items() if name not in _BROKERS}
        given = {
            name: Secret(text) if is_secret(name) else text for name, text in kept.items() if not _OURS.match(name)
        }
        return cls(tidy_addresses(servers, "Kafka"), _RESET[said], given)

    @property
    def committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.given.get("isolation.level") == "read_committed"

    def cluster(self) -> Cluster:
        """The cluster for the driver's own questions."""
        access = {name: value for name, value in self.given.items() if is_access(name)}
        return Cluster(self.bootstrap, _native(access) if _is_javas(access) else access, _TIMEOUT)

    def for_spark(self) -> dict[str, str]:
        """The options with which Spark's own reader gets to the same brokers."""
        access = {name: value for name, value in self.given.items() if is_access(name)}
        javas = access if _is_javas(access) else for_java(access)
        other = {name: value for name, value in self.given.items() if not is_access(name)}
        found = {f"kafka.{name}": value for name, value in {**other, **javas}.items()}
        return {**found, "kafka.bootstrap.servers": self.bootstrap}


def _is_javas(access: Mapping[str, str]) -> bool:
    return any(_JAVA_ONLY.match(name) for name in access)


def _native(access: Mapping[str, str]) -> dict[str, str]:
    """The properties of a Java client as librdkafka has them."""
    made = {name: value for name, value in access.items() if not _JAVA_ONLY.match(name)}
    if line := access.get("sasl.jaas.config"):
        login = {name: Secret((quoted or bare).replace('\\"', '"')) for name, quoted, bare in _JAAS.findall(line)}
        if set(login) != {"username", "password"}:
            hint = "PLAIN and SCRAM can be read from it; else use librdkafka's names, see docs/security.md"
            raise InvalidOption("sasl.jaas.config has no username and password", hint=hint)
        made |= {f"sasl.{name}": value for name, value in login.items()}
    made |= _authority(access) | _certificate(access)
    if made.get(_PLAIN) == "":
        made[_PLAIN] = "none"
    return made


def _authority(access: Mapping[str, str]) -> dict[str, str]:
    if pem := access.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": pem}
    if not (place := access.get("ssl.truststore.location")):
        return {}
    _require_pem("truststore", access)
    return {"ssl.ca.location": place}


def _certificate(access: Mapping[str, str]) -> dict[str, str]:
    if chain := access.get("ssl.keystore.certificate.chain"):
        return {"ssl.certificate.pem": chain, "ssl.key.pem": Secret(access.get("ssl.keystore.key", ""))}
    if not (place := access.get("ssl.keystore.location")):
        return {}
    if access.get("ssl.keystore.type", "").upper() == "PKCS12":
        return {"ssl.keystore.location": place, "ssl.keystore.password": access.get("ssl.keystore.password", "")}
    _require_pem("keystore", access)
    text = read_limited_text(place)
    return {"ssl.certificate.pem": text, "ssl.key.pem": Secret(text)}


def _require_pem(store: str, access: Mapping[str, str]) -> None:
    if access.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
        hint = f"ssl.{store}.type=PEM and a PEM file, or librdkafka's names; keytool and openssl convert them"
        raise InvalidOption(f"the driver cannot read a {store} in Java's own format", hint=hint)
