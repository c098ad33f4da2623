"""What the options of Kafka's source and sink have in common: names of topics, client properties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millrace.clients.kafka import topics
from millrace.clients.kafka.security import is_access
from millrace.connectors.base.api import RunContext
from millrace.pipeline.connector_facts import OptionMistake

_ONE_CLUSTER = "every client of a run needs it: --kafka-config FILE, or MILLRACE_KAFKA_SASL_… and MILLRACE_KAFKA_SSL_…"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def bad_topic_names(names: Sequence[str]) -> Iterator[OptionMistake]:
    for name in names:
        if not _NAME.fullmatch(name) or name in (".", ".."):
            hint = "a topic's name has letters, digits, '.', '_' and '-', at most 249 of them"
            yield OptionMistake("option.invalid", f"there can be no topic named {name!r}", None, hint)


def access_in_config(config: Mapping[str, Any] | None) -> Iterator[OptionMistake]:
    """Yield properties of the connection to the cluster: in `config` only some of the clients would get them."""
    for name in config or ():
        if is_access(name) or name == "bootstrap.servers":
            said = f"{name} is said of the cluster, not of a source or sink"
            yield OptionMistake("option.invalid", said, "config", _ONE_CLUSTER)


def ensure_topic(context: RunContext, name: str) -> None:
    if context.create_topics:
        topics.ensure(context.cluster(), name)
    else:
        topics.require(context.cluster().connect(), name)
