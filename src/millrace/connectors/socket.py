"""A TCP socket that sends lines, for lessons: what was read cannot be read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millrace.connectors.base.api import RunContext
from millrace.connectors.base.message_source import DecodedSource
from millrace.dead_letters.writer import DeadLetterTarget, FolderDeadLetterTarget
from millrace.errors import InvalidOption
from millrace.pipeline.connector_facts import OptionMistake
from millrace.plugins import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class SocketSource(DecodedSource):
    """Lines that a TCP server sends. Spark keeps none of them: a restart begins at what comes then."""

    carried: ClassVar[dict[str, str]] = {"timestamp": "timestamp"}
    resumes: ClassVar[bool] = False
    dead_letters_in_state_dir: ClassVar[bool] = True

    address: str = option(help="HOST:PORT of the server.", argument=True)
    format: str = option("text", "What a line is: json, csv, text or raw.")

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from super().mistakes()
        try:
            self._host_and_port()
        except InvalidOption as error:
            yield OptionMistake("option.invalid", error.message, hint=error.hint)

    def load(self, context: RunContext) -> DataFrame:
        host, port = self._host_and_port()
        reader = context.spark.readStream.format("socket").option("host", host).option("port", port)
        return reader.option("includeTimestamp", True).load().selectExpr("cast(value as binary) value", "timestamp")

    def dead_letter_target(self, context: RunContext) -> DeadLetterTarget:
        return FolderDeadLetterTarget(context.state / "dead" / context.name, context.pipeline, context.name)

    def _host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidOption(f"{self.address!r} is no address", hint="write HOST:PORT")
        return host, int(port)
