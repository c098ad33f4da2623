"""Where each text of an Arrow array stands in the bytes of all, so that bytes can be looked at many at a time.

The Arrow types in which Spark takes columns back from `mapInArrow`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from millrace.pipeline.schema import Array, Decimal, Field, Map, Schema, Struct, Type

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_FEW = 128


def byte_set(members: bytes) -> Mask:
    """Whether each byte is a member."""
    found = np.zeros(256, np.bool_)
    found[list(members)] = True
    return found


class TextLayout(NamedTuple):
    """The bytes of all texts, and where each starts and how long it is."""

    data: Bytes
    starts: Places
    lengths: Places

    @classmethod
    def of(cls, texts: pa.Array) -> TextLayout:
        _, offsets, data = texts.buffers()
        if not len(texts) or data is None:
            return cls(np.empty(0, np.uint8), np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64))
        ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        return cls(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], ends[:-1] - ends[0], np.diff(ends))

    def edges(self, inwards: int = 0) -> tuple[Bytes, Bytes]:
        """The first and last byte of each text, or those further in; of a text that is too short whatever is near."""
        if not len(self.data):
            nothing = np.zeros(len(self.lengths), np.uint8)
            return nothing, nothing
        last = len(self.data) - 1
        first = np.minimum(self.starts + inwards, last)
        return self.data[first], self.data[np.maximum(self.starts + self.lengths - 1 - inwards, 0)]

    def with_word(self, word: bytes) -> Places:
        """The texts that have a word in them; it is looked for by its first byte, so that should be rare."""
        places = np.flatnonzero(self.data == word[0])
        if not len(places):
            return places
        places = places[places + len(word) <= len(self.data)]
        for step, byte in enumerate(word[1:], 1):
            places = places[self.data[places + step] == byte]
        owners = np.searchsorted(self.starts, places, "right") - 1
        inside: Mask = places + len(word) <= self.starts[owners] + self.lengths[owners]
        return np.unique(owners[inside])

    def text(self, place: int) -> bytes:
        start = self.starts[place]
        return self.data[start : start + self.lengths[place]].tobytes()


class Texts(NamedTuple):
    """Messages as texts; those that are null or not UTF-8 must not be used as such."""

    texts: pa.Array
    broken: Mask


def texts_of(values: pa.Array) -> Texts:
    """Binary values as texts."""
    broken = values.is_null().to_numpy(zero_copy_only=False).copy()
    try:
        return Texts(values.cast(pa.string()), broken)
    except pa.ArrowInvalid:
        for start in range(0, len(values), _FEW):
            piece = values.slice(start, _FEW)
            try:
                piece.cast(pa.string())
            except pa.ArrowInvalid:
                broken[start : start + _FEW] = [not_text_reason(value) is not None for value in piece.to_pylist()]
        return Texts(values.view(pa.string()), broken)


TOMBSTONE = "no value (a tombstone)"


def not_text_reason(value: bytes | None) -> str | None:
    """The reason why a message is no text, if it is none."""
    if value is None:
        return TOMBSTONE
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    return None


_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns as Spark wants them back."""
    return pa.schema([arrow_field(field) for field in schema.fields])


def arrow_field(field: Field) -> pa.Field:
    """One column, or one field of a struct."""
    return pa.field(field.name, arrow_type(field.type), nullable=field.nullable)


def arrow_type(kind: Type) -> pa.DataType:
    """A Spark type in Arrow; the names of inner fields are those that Spark uses."""
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, Map):
        return pa.map_(arrow_type(kind.key), pa.field("value", arrow_type(kind.value)))
    if isinstance(kind, Struct):
        return pa.struct([arrow_field(field) for field in kind.fields])
    return _SIMPLE[kind.name]
