"""What tests of formats share: decoding lists of bytes, and random JSON records, good and bad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millrace.formats.base import FORMATS, DecodedRecords, Decoder
from millrace.pipeline.schema import parse_schema


def decoder(name: str, ddl: str | None, **options: Any) -> Decoder:
    """A decoder by the name of its format."""
    return FORMATS.load(name)(**options).decoder(parse_schema(ddl) if ddl else None)


def decode(with_decoder: Decoder, values: Sequence[bytes | None]) -> DecodedRecords:
    """Decode values, and see that every one of them is in the result once."""
    decoded = with_decoder.decode(pa.array(values, pa.binary()))
    decoded.rows.validate(full=True)
    good = range(len(values)) if decoded.good is None else decoded.good.to_pylist()
    assert len(decoded.rows) == len(good)
    bad = [one.index for one in decoded.bad]
    assert sorted([*good, *bad]) == list(range(len(values)))
    assert list(good) == sorted(good)
    assert bad == sorted(bad)
    assert all(one.reason and "\n" not in one.reason and len(one.reason) < 300 for one in decoded.bad)
    return decoded


def rows(decoded: DecodedRecords) -> list[dict[str, Any]]:
    """The good rows as Python values."""
    return list(decoded.rows.to_pylist())


def reasons(decoded: DecodedRecords) -> dict[int, str]:
    """Why each bad record is bad."""
    return {bad.index: bad.reason for bad in decoded.bad}


def outcomes(decoded: DecodedRecords, count: int) -> list[object]:
    """What became of each value: a row, or a reason."""
    bad = reasons(decoded)
    good = iter(rows(decoded))
    return [bad[index] if index in bad else next(good) for index in range(count)]


_NUMBERS = (
    "0 -0 1 -1 7 127 128 -128 -129 32767 32768 2147483647 2147483648 9223372036854775807 9223372036854775808 "
    "-9223372036854775808 -9223372036854775809 18446744073709551616 123456789012345678901234567890 1.0 1e2 1E2 "
    "1e-2 0.1 -0.0 1.5 1.005 2.345 123.456 999.99 999.995 99999999.999 1e38 1e39 3.4028235677973366e38 1e308 "
    "1e309 1e999 1e-400 1e-999999999999 1700000000 1700000000.5 253402300799 "
    "253402300800 -62135596800 -62135596801 12345678901234567.89 0.12499999999999999999 1.2300 NaN Infinity "
    "-Infinity -NaN Inf 01 +1 1. .5 - 0x1 1_0"
)
NUMBERS = _NUMBERS.split()  # and what some take for one
TEXTS = (
    "",
    "a",
    "1",
    "1.25",
    "1.235",
    " 1",
    "+1",
    "1e2",
    "1e40",
    "1e99999999999",
    "11111111111111111111111111111111111111",
    "NaN",
    "Infinity",
    "to Infinity",
    "}{",
    "[{",
    "true",
    "YWJj",
    "YWJ",
    "YW Jj",
    "2024-01-01",
    "2024-02-30",
    "0000-01-01",
    "0001-01-01",
    "9999-12-31",
    "2024-1-1",
    "20240101",
    "2024-W01-1",
    "2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00",
    "2024-01-01 12:34:56.789",
    "2024-01-01T00:00:00.123456Z",
    "2024-01-01T00:00:00.1234567Z",
    "2024-01-01T00:00:00.123456789+01:00",
    "1969-12-31T23:59:59.123456789Z",
    "2024-01-01T00:00:00.1234567891Z",
    "2024-01-01T00:00:00+02:00",
    "2024-01-01T00:00:00-0230",
    "2024-01-01T00:00+02",
    "2024-01-01T12",
    "2024-01-01T12Z",
    "2024-01-01Z",
    "2024-01-01T24:00:00Z",
    "2024-01-01T23:59:60Z",
    "2024-01-01T00:00:00+24:00",
    "2024-01-01T00:00:00+05:60",
    "2024-01-01t00:00:00z",
    "2024-01-01T00:00:00,5Z",
    "2024-01-01T00:00:00 Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "1600-01-01T00:00:00.1234567Z",
    "1700000000",
)
ESCAPES = (r"\ud83d\ude00", r"\ud800", r"\ude00\ud83d", r"\u0000", r"\n", r"\x", r"A", "\\", "\t", "é😀", "\x7f")

scalars = (
    st.sampled_from(NUMBERS)
    | st.sampled_from(["true", "false", "null", "True", "nul", "undefined"])
    | st.sampled_from([f'"{text}"' for text in (*TEXTS, *ESCAPES)])
    | st.integers().map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.text(st.characters(exclude_characters='"\\', exclude_categories=("Cc", "Cs"))).map(lambda text: f'"{text}"')
)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(['"a"', '"b"', '"c"', '"id"'])
    members = st.tuples(names, inner).map(":".join)
    return st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]") | st.lists(members, max_size=3).map(
        lambda items: f"{{{','.join(items)}}}"
    )


json_values = st.recursive(scalars, _nested, max_leaves=5)


def json_records(good: dict[str, list[str]]) -> st.SearchStrategy[bytes]:
    """Records with fields of these names: mostly with one of the given values, sometimes with any, or broken."""
    fields = [st.tuples(st.just(f'"{name}"'), st.sampled_from(values) | json_values) for name, values in good.items()]
    unknown = st.tuples(st.sampled_from(['"x"', '"ID"', '""', "x", r'"id"']), json_values)
    members = st.lists(st.one_of(*fields, unknown), max_size=6)
    blanks = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t"])
    objects = st.builds(
        lambda items, around, between: (
            around + "{" + ("," + between).join(":".join(item) for item in items) + "}" + around
        ),
        members,
        blanks,
        blanks,
    ).map(lambda text: text.encode("utf-8", "surrogatepass"))
    return objects | objects.flatmap(_broken) | st.binary(max_size=12) | json_values.map(str.encode)


def _broken(text: bytes) -> st.SearchStrategy[bytes]:
    place = st.integers(0, len(text))
    return (
        place.map(lambda end: text[:end])
        | st.tuples(place, st.binary(min_size=1, max_size=2)).map(lambda cut: text[: cut[0]] + cut[1] + text[cut[0] :])
        | st.sampled_from([text + text, text + b" " + text, text + b"\n" + text, b"\xef\xbb\xbf" + text, b"[" + text])
    )
