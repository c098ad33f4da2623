"""Flume: what its agents send, through a topic of Kafka."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from millrace.connectors.base.api import SourceFilling
from millrace.connectors.kafka.source import KafkaSource
from millrace.pipeline.connector_facts import OptionMistake
from millrace.plugins import option


@dataclass(frozen=True, kw_only=True)
class FlumeSource(KafkaSource):
    """Events of Flume's agents, which send them with their Avro sink; they are kept in a topic and read from there.

    At least once from the agent on: it is answered OK when Kafka has its events, and sends them again when it was not.
    """

    system: ClassVar[str] = "kafka"
    topic: tuple[str, ...] = option(help="The topic that keeps the events.", argument=True)
    listen: str = option("127.0.0.1:4141", "Where the agents send to, as HOST:PORT.")
    allow: tuple[str, ...] = option((), "Who may send: addresses and networks. Beyond this machine it is needed.")
    key: str | None = option("key", "The header whose value becomes the record's key.")
    max_bytes: int = option(16_000_000, "The largest batch that is taken from an agent, in bytes.", least=1)
    pattern: str | None = field(default=None, init=False)
    partitions: Mapping[str, Any] | None = field(default=None, init=False)
    current: bool = field(default=False, init=False)

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from super().mistakes()
        if len(self.topic) > 1:
            yield OptionMistake("option.invalid", "flume has one topic", "topic")
        host, port = self._address()
        if not host or port is None or port > 65535:
            hint = "write HOST:PORT, as 0.0.0.0:4141"
            yield OptionMistake("option.invalid", f"flume cannot listen at {self.listen!r}", "listen", hint)
        elif not self.allow and not _on_this_machine(host):
            hint = "say who may send, as allow: [10.1.0.0/16], or listen at 127.0.0.1"
            why = "Flume's protocol knows no passwords"
            yield OptionMistake("option.missing", f"others reach {host}, so flume needs allow", "listen", hint, why)
        for network in self.allow:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                message, hint = f"{network!r} is no network", "write 10.1.0.0/16"
                yield OptionMistake("option.invalid", message, "allow", hint, str(error))

    def filling(self) -> SourceFilling:
        host, port = self._address()
        options = {"host": host, "port": port, "key": self.key, "max_bytes": self.max_bytes}
        return SourceFilling("flume", self.topic[0], options | {"allow": ",".join(self.allow) or None}, self.listen)

    def _address(self) -> tuple[str, int | None]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port) if port.isdecimal() and len(port) <= 5 else None


def _on_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"  # what other names mean is seen when it listens
