"""Lines of CSV to columns: all lines without quotes at once, the others one by one."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.arrow import arrow_schema
from millrace.formats.base import Decoded, Decoder
from millrace.formats.csv_columns import TextColumn
from millrace.formats.harvest import Harvest, Indices, portions
from millrace.formats.layout import Layout, Mask
from millrace.formats.values import Wrong
from millrace.pipeline.schema import Schema
from millrace.units import so_many

_ENDS = "\r\n"


class CsvDecoder(Decoder):
    """Decodes messages that are one line each."""

    def __init__(self, schema: Schema, separator: str, quote: str, null: str) -> None:
        self._arrow = arrow_schema(schema)
        self._columns = [TextColumn(field) for field in schema.fields]
        self._separator = separator
        self._null = null
        self._quote = quote
        self._splitter = _Splitter(separator, quote, null)

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a batch."""
        harvest = Harvest(self._arrow)
        for portion, indices in portions(values):
            texts, good = harvest.texts(portion, indices)
            self._lines(pc.ascii_rtrim(texts, _ENDS), good, harvest)
        return harvest.decoded()

    def _lines(self, texts: pa.Array, indices: Indices, harvest: Harvest) -> None:
        odd = self._odd(texts)
        if odd.any():
            self._one_by_one(texts.filter(pa.array(odd)), indices[odd], harvest)
            texts, indices = texts.filter(pa.array(~odd)), indices[~odd]
        self._at_once(texts, indices, harvest)

    def _odd(self, texts: pa.Array) -> Mask:
        """Lines with quotes or line ends in them, and empty ones."""
        layout = Layout.of(texts)
        odd: Mask = layout.lengths == 0
        for sign in (self._quote, *_ENDS):
            if sign:
                odd[layout.with_word(sign.encode())] = True
        return odd

    def _at_once(self, texts: pa.Array, indices: Indices, harvest: Harvest) -> None:
        fields = pc.split_pattern(texts, self._separator)
        counts = pc.list_value_length(fields).to_numpy(zero_copy_only=False)
        width = len(self._columns)
        uneven = counts != width
        for place in np.flatnonzero(uneven).tolist():
            harvest.refuse(indices[place], _uneven(int(counts[place]), width))
        if uneven.any():
            fields, indices = fields.filter(pa.array(~uneven)), indices[~uneven]
        flat = fields.flatten()
        flat = pc.if_else(pc.equal(flat, self._null), pa.scalar(None, pa.string()), flat)
        places = np.arange(0, len(flat), width)
        self._typed([flat.take(pa.array(places + column)) for column in range(width)], indices, harvest)

    def _one_by_one(self, texts: pa.Array, indices: Indices, harvest: Harvest) -> None:
        records, kept = [], []
        for place, text in enumerate(texts.to_pylist()):
            try:
                fields = self._splitter.split(text)
                if len(fields) != len(self._columns):
                    raise Wrong(_uneven(len(fields), len(self._columns)))
                records.append(fields)
                kept.append(place)
            except Wrong as wrong:
                harvest.refuse(indices[place], wrong.reason)
        if records:
            columns = [pa.array(column, pa.string()) for column in zip(*records, strict=True)]
            self._typed(columns, indices[kept], harvest)

    def _typed(self, texts: list[pa.Array], indices: Indices, harvest: Harvest) -> None:
        bad: dict[int, str] = {}
        arrays = [column.array(values, bad) for column, values in zip(self._columns, texts, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        for place, reason in bad.items():
            harvest.refuse(indices[place], reason)
        if bad:
            good = [place for place in range(len(indices)) if place not in bad]
            rows, indices = rows.take(pa.array(good, pa.int64())), indices[good]
        harvest.add(rows, indices)


def _uneven(count: int, wanted: int) -> str:
    return f"{so_many(count, 'field')} instead of {wanted:,}"


class _Splitter:
    """Splits one line; a quoted field is never null."""

    def __init__(self, separator: str, quote: str, null: str) -> None:
        mark, end = re.escape(quote), re.escape(separator)
        quoted = rf"{mark}((?:[^{mark}]|{mark}{mark})*){mark}" if quote else r"(?!)()"
        self._field = re.compile(rf"(?:{quoted}|([^{mark}{end}\r\n]*))({end}|\Z)")
        self._quote = quote
        self._null = null

    def split(self, line: str) -> list[str | None]:
        """The fields of a line."""
        if not line:
            raise Wrong("empty")
        fields: list[str | None] = []
        place = 0
        while found := self._field.match(line, place):
            quoted, plain, end = found.groups()
            if quoted is not None:
                fields.append(quoted.replace(self._quote * 2, self._quote))
            else:
                fields.append(None if plain == self._null else plain)
            if not end:
                return fields
            place = found.end()
        raise Wrong(f"not one line of CSV from character {place + 1} on")
