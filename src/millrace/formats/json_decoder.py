"""JSON messages to columns: a batch at once where pyarrow reads it, record by record where something is wrong.

Whichever way a record goes, its result is the same; tests compare the ways with random records.
"""

from __future__ import annotations

import json
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from millrace.formats.base import Decoded, Decoder
from millrace.formats.harvest import Harvest, Indices, portions
from millrace.formats.json_lines import lines
from millrace.formats.json_reader import TIMES, JsonReader, Unreadable
from millrace.formats.layout import why_no_text
from millrace.formats.rows import BULK, Rows
from millrace.formats.values import JSON_LEAVES
from millrace.pipeline.schema import Array, Map, Schema, Struct, Type

_CUT = 8
SMALLEST = 1024
"""So many records go the slow way together when one of them must: with fewer, pyarrow's overhead would show."""
_LARGEST = SMALLEST * _CUT * _CUT


class _Piece(NamedTuple):
    """Texts without blanks around, where they are in the portion, and the portion as it came."""

    texts: pa.Array
    places: Indices
    portion: _Portion

    def slice(self, start: int, size: int) -> _Piece:
        return _Piece(self.texts.slice(start, size), self.places[start : start + size], self.portion)


class _Portion(NamedTuple):
    """Messages, and their indices in the batch."""

    values: pa.Array
    indices: Indices

    def take(self, places: Indices) -> _Portion:
        return _Portion(self.values.take(pa.array(places)), self.indices[places])


class JsonDecoder(Decoder):
    """Decodes messages that are one JSON object each."""

    def __init__(self, schema: Schema) -> None:
        leaves = {kind.ddl() for field in schema.fields for kind in _leaves(field.type)}
        self._rows = Rows(schema, JSON_LEAVES, BULK)
        self._load = _load_exactly if any(leaf.startswith("decimal") for leaf in leaves) else orjson.loads
        self._required = [field.name for field in schema.fields if not field.nullable]
        times = TIMES if "timestamp" in leaves else TIMES[:1]
        self._readers = [JsonReader(schema, way) for way in times] if JsonReader.reads(schema) else []
        self._size = _LARGEST

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a batch."""
        harvest = Harvest(self._rows.arrow)
        for portion in portions(values):
            if self._readers:
                self._sorted_out(_Portion(*portion), harvest)
            else:
                for start in range(0, len(portion[0]), SMALLEST):
                    places = np.arange(start, min(start + SMALLEST, len(portion[0])))
                    self._slowly(_Portion(*portion).take(places), harvest)
        return harvest.decoded()

    def _sorted_out(self, portion: _Portion, harvest: Harvest) -> None:
        texts, odd = lines(portion.values)
        places = np.arange(len(texts))
        if odd.any():
            self._slowly(portion.take(places[odd]), harvest)
            texts, places = texts.filter(pa.array(~odd)), places[~odd]
        refused = self._pieces(_Piece(texts, places, portion), self._size, harvest)
        if not refused:
            self._size = min(self._size * _CUT, _LARGEST)
        elif refused * self._size * 2 > len(texts):
            self._size = max(self._size // _CUT, SMALLEST)

    def _pieces(self, whole: _Piece, size: int, harvest: Harvest) -> int:
        """How many pieces of a size could not be read at once; they are cut into smaller ones."""
        refused = 0
        for start in range(0, len(whole.texts), size):
            piece = whole.slice(start, size)
            if self._quickly(piece, harvest):
                continue
            refused += 1
            if len(piece.texts) > SMALLEST:
                self._pieces(piece, max(size // _CUT, SMALLEST), harvest)
            elif self._slowly(piece.portion.take(piece.places), harvest):
                # Nothing is wrong with them, so perhaps times are written in another way from now on.
                self._readers.append(self._readers.pop(0))
        return refused

    def _quickly(self, piece: _Piece, harvest: Harvest) -> bool:
        try:
            rows, odd = self._readers[0].read(piece.texts)
        except Unreadable:
            return False
        if odd:
            self._slowly(piece.portion.take(piece.places[sorted(odd)]), harvest)
        indices = piece.portion.indices[piece.places]
        missing = self._missing(rows)
        for place, reason in missing.items():
            if place not in odd:
                harvest.refuse(indices[place], reason)
        if odd or missing:
            good = [place for place in range(len(rows)) if place not in odd and place not in missing]
            rows, indices = rows.take(pa.array(good, pa.int64())), indices[good]
        harvest.add(rows, indices)
        return True

    def _missing(self, rows: pa.RecordBatch) -> dict[int, str]:
        missing: dict[int, str] = {}
        for name in self._required:
            if rows.column(name).null_count:
                for place in rows.column(name).is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
                    missing.setdefault(place, f"column {name}: missing")
        return missing

    def _slowly(self, portion: _Portion, harvest: Harvest) -> bool:
        """Record by record; says whether all were good."""
        values, indices = portion
        records, bad = self._records(values.to_pylist())
        for place, reason in bad.items():
            harvest.refuse(indices[place], reason)
        places = np.delete(indices, list(bad)) if bad else indices
        table = self._rows.of_records(records)
        for place, reason in table.bad.items():
            harvest.refuse(places[place], reason)
        harvest.add(table.rows, places if table.good is None else places[table.good])
        return len(table.rows) == len(values)

    def _records(self, values: list[bytes | None]) -> tuple[list[dict[str, Any]], dict[int, str]]:
        """The objects in messages, and why there is none in the others."""
        records: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        load, append = self._load, records.append
        for place, value in enumerate(values):
            try:
                record = load(value)  # type: ignore[arg-type]  # orjson refuses None as it does garbage
            except (orjson.JSONDecodeError, RecursionError) as error:
                bad[place] = _why(value, error)
                continue
            if type(record) is dict:
                append(record)
            else:
                bad[place] = f"not a JSON object: {_NAMES[type(record)]}"
        return records, bad


_NAMES = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"} | dict.fromkeys(
    (int, float, Number), "a number"
)


def _why(value: bytes | None, error: Exception) -> str:
    broken = why_no_text(value)
    if broken or not value:
        return broken or "empty"
    if isinstance(error, orjson.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos + 1}"
    return "not JSON: nested too deep"


def _load_exactly(value: bytes) -> Any:
    """As orjson does, and it says what is JSON; but with all digits of a number, for decimals."""
    orjson.loads(value)
    return json.loads(value.decode(), parse_float=_number)


def _number(text: str) -> Number | float:
    try:
        return Number(text)
    except InvalidOperation:  # nearer to 0 than a Decimal can tell
        return 0.0


def _leaves(kind: Type) -> list[Type]:
    """The types within a type that hold no other."""
    if isinstance(kind, Array):
        return _leaves(kind.element)
    if isinstance(kind, Map):
        return [*_leaves(kind.key), *_leaves(kind.value)]
    if isinstance(kind, Struct):
        return [leaf for field in kind.fields for leaf in _leaves(field.type)]
    return [kind]
