"""How records are sent: acknowledgements, idempotence, compression, transactions, patience."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from millrace.errors import InvalidOption

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
_TRANSACTION = 60.0
_LONGEST_TRANSACTION = 900.0
"""Brokers refuse longer ones unless they are told otherwise."""
_LONGEST = 2_000_000.0
"""Seconds that the client can count in milliseconds."""


@dataclass(frozen=True)
class Delivery:
    """How records are sent; raises when the choices contradict each other."""

    acks: str = "all"
    idempotence: bool | None = None
    compression: str | None = None
    transaction: str | None = None
    timeout: float = 120.0
    linger: float | None = None
    only_failures: bool = False
    """Hear of failures only, which is quicker; nobody can then be told when a send is safe."""

    def __post_init__(self) -> None:
        _require(self.acks in ACKS, f"acks cannot be {self.acks!r}", "use 0, 1 or all")
        _require(
            self.compression in (None, *COMPRESSIONS),
            f"there is no compression {self.compression!r}",
            f"use one of {', '.join(COMPRESSIONS)}",
        )
        _require(
            (self.linger or 0.02) < self.timeout <= _LONGEST,
            f"a record cannot be given {self.timeout:g} s to arrive",
            "use a timeout from 100ms to 20d",
        )
        _require(
            self.transaction is None or (self.transaction != "" and self.transaction.isprintable()),
            f"{self.transaction!r} cannot be the id of a transaction",
            "use letters, digits, '.', '_' and '-'",
        )
        _require(
            not self.transaction or self.timeout <= _LONGEST_TRANSACTION,
            f"a transaction cannot be given {self.timeout:g} s",
            "use a timeout of at most 15m",
        )
        _require(
            not (self.transaction and self.idempotence is False),
            "a transaction cannot go without idempotence",
            "leave --no-idempotence out",
        )
        _require(
            self.acks == "all" or not (self.idempotence or self.transaction),
            f"acks={self.acks} cannot go with idempotence or a transaction",
            "they need --acks all, which is the default",
        )

    def tuning(self) -> dict[str, Any]:
        """What a file of client properties may choose otherwise."""
        return {
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            # The topic's own limit decides, not the client's: its default is a tenth of this.
            "message.max.bytes": 10_000_000,
        }

    def config(self) -> dict[str, Any]:
        """What was chosen here."""
        return {
            "acks": self.acks,
            "enable.idempotence": self.acks == "all" if self.idempotence is None else self.idempotence,
            "message.timeout.ms": int(self.timeout * 1000),
            **({"compression.type": self.compression} if self.compression else {}),
            **({"linger.ms": self.linger * 1000} if self.linger is not None else {}),
            **({"delivery.report.only.error": True} if self.only_failures else {}),
            **self._transactional(),
        }

    def _transactional(self) -> dict[str, Any]:
        """A transaction may not end before the records in it do."""
        if not self.transaction:
            return {}
        longest = max(_TRANSACTION, self.timeout)
        return {"transactional.id": self.transaction, "transaction.timeout.ms": int(longest * 1000)}


def new_transaction() -> str:
    """An id for a transaction that nobody else has."""
    return f"millrace-{uuid.uuid4()}"


def _require(holds: bool, what: str, hint: str) -> None:
    if not holds:
        raise InvalidOption(what, hint=hint)
