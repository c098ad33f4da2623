"""Text: a message is one string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millrace.formats.base import Decoder, Format, require_single_column
from millrace.pipeline.schema import Schema, Simple


@dataclass(frozen=True, kw_only=True)
class Text(Format):
    """The message as a string, in the column `value`; bytes that are not UTF-8 are bad."""

    needs_schema: ClassVar[bool] = False

    def columns(self, schema: Schema | None) -> Schema:
        """One string; a schema may give it another name."""
        return require_single_column(schema, "text", Simple("string"))

    def decoder(self, schema: Schema | None) -> Decoder:
        from millrace.formats.row_builder import TextDecoder

        return TextDecoder(self.columns(schema))
