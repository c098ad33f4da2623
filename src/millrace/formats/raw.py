"""Raw: a message is the bytes it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millrace.formats.base import Decoder, Format, require_single_column
from millrace.pipeline.schema import Schema, Simple


@dataclass(frozen=True, kw_only=True)
class Raw(Format):
    """The message's bytes, in the column `value`; nothing is bad, and a tombstone is null."""

    needs_schema: ClassVar[bool] = False

    def columns(self, schema: Schema | None) -> Schema:
        """One binary column; a schema may give it another name."""
        return require_single_column(schema, "raw", Simple("binary"))

    def decoder(self, schema: Schema | None) -> Decoder:
        from millrace.formats.row_builder import RawDecoder

        return RawDecoder(self.columns(schema))
