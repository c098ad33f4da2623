"""CSV: a message is one line, its fields are the columns in order."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.errors import InvalidOption, InvalidSchema
from millrace.formats.base import Decoder, Format, require_schema
from millrace.pipeline.schema import Decimal, Schema, Simple
from millrace.plugins import option


def _one_sign(text: str) -> str:
    sign = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(sign) != 1 or sign in "\r\n":
        raise InvalidOption(f"it must be one character, not {text!r}", hint="for example: ;")
    return sign


def _sign_or_none(text: str) -> str:
    return _one_sign(text) if text else ""


@dataclass(frozen=True, kw_only=True)
class Csv(Format):
    """Fields between commas, without a header; every column of the schema must be there."""

    separator: str = option(",", "What stands between two fields.", parse=_one_sign)
    quote: str = option(
        '"', "What stands around a field that has separators in it; empty for none.", parse=_sign_or_none
    )
    null: str = option("", "An unquoted field with this text is null.", shown_default="an empty field")

    def columns(self, schema: Schema | None) -> Schema:
        """The declared ones, which must be simple."""
        schema = require_schema(schema, "csv")
        if _one_sign(self.separator) == _sign_or_none(self.quote):
            raise InvalidOption(f"{self.separator!r} cannot be both the separator and the quote")
        for field in schema.fields:
            if not isinstance(field.type, Simple | Decimal):
                raise InvalidSchema(
                    f"column {field.name}: a field of CSV cannot be {field.type.ddl()}",
                    hint="take it as string and parse it in a table",
                )
        return schema

    def decoder(self, schema: Schema | None) -> Decoder:
        """A decoder that splits all lines at once, and one by one those with quotes."""
        from millrace.formats.csv_decoder import CsvDecoder

        return CsvDecoder(self.columns(schema), _one_sign(self.separator), _sign_or_none(self.quote), self.null)
