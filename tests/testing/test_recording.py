"""Columns that are masked: the same value always by the same one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.testing import recording
from millrace.testing.recording import ColumnMasker, UnmaskableColumn

Headers = list[tuple[str, bytes | None]]


def record(value: object, key: bytes | None = b"k", headers: Headers | None = None) -> dict[str, Any]:
    told = value if isinstance(value, bytes) else json.dumps(value).encode()
    return {"key": key, "value": told, "headers": headers or []}


def masked(masker: ColumnMasker, value: object) -> Any:
    return json.loads(masker.record(record(value))["value"])


def test_the_same_value_becomes_the_same_and_others_stay() -> None:
    masker = ColumnMasker(["author", "user.mail", "n"])
    first = masked(masker, {"author": "ada", "text": "hi", "user": {"mail": "ada"}, "n": 7, "x": None})
    second = masked(masker, {"author": "ada", "n": 8})
    assert first["author"] == first["user"]["mail"] == second["author"] != "ada"
    assert first["text"] == "hi"
    assert isinstance(first["n"], int)
    assert first["n"] != second["n"]
    assert masked(ColumnMasker(["author"]), {"author": "ada"})["author"] != first["author"]
    assert masker.met == {"author", "user.mail", "n"}


def test_recordings_of_one_phrase_agree() -> None:
    assert masked(ColumnMasker(["a"], "p"), {"a": "x"}) == masked(ColumnMasker(["a"], "p"), {"a": "x"})


def test_bytes_in_which_nothing_is_masked_stay_as_they_are() -> None:
    odd = b'{ "text" : "hi", "n": 1e3 }'
    assert ColumnMasker(["author"]).record(record(odd))["value"] == odd
    assert ColumnMasker([]).record(record(b"\xff"))["value"] == b"\xff"


def test_the_key_can_be_masked_and_lists_are_masked_within() -> None:
    masker = ColumnMasker(["key", "tags", "people.name"])
    told = masker.record(record({"tags": ["a", "b", "a"], "people": [{"name": "ada"}, {"name": None}]}))
    assert told["key"].startswith(b"masked-")
    value = json.loads(told["value"])
    assert value["tags"][0] == value["tags"][2] != value["tags"][1]
    assert value["people"][1]["name"] is None


def test_what_is_masked_cannot_be_read_in_the_key_or_in_a_header() -> None:
    masker = ColumnMasker(["author", "n"])
    keys = [b"ada", b'"ada"', b'{"who":"ada"}', b"\xff ada", b"7", None]
    told = [masker.record(record({"author": "ada", "n": 7}, key, [("by", b"ada"), ("no", None)])) for key in keys]
    assert not any(b"ada" in content for one in told for content in (one["key"] or b"", one["value"]))
    value = json.loads(told[0]["value"])
    assert value["author"].encode() == told[0]["key"] == told[0]["headers"][0][1]
    assert json.loads(told[1]["key"]) == json.loads(told[2]["key"])["who"] == value["author"]
    assert json.loads(told[4]["key"]) == value["n"] != 7
    assert told[5]["key"] is told[5]["headers"][1][1] is None


def test_keys_and_headers_are_kept_where_that_is_asked_for() -> None:
    told = ColumnMasker(["author"], keep=["key"]).record(record({"author": "ada"}, b"k", [("h", b"x")]))
    assert (told["key"], told["headers"][0][1] == b"x") == (b"k", False)
    told = ColumnMasker(["author"], keep=["headers"]).record(record({"author": "ada"}, b"k", [("h", b"x")]))
    assert (told["key"] == b"k", told["headers"]) == (False, [("h", b"x")])


def test_a_column_named_key_is_masked_with_the_key_and_other_values_stay() -> None:
    masker = ColumnMasker(["key"])
    told = masker.record(record({"key": "ada"}, b"ada"))
    assert json.loads(told["value"])["key"].encode() == told["key"] != b"ada"
    assert masker.record(record(b"plain text"))["value"] == b"plain text"


NUMBERS = [0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 2**64 + 1, 10**30]
TEXTS = ["0.5", "0.30000000000000004", "-12.25", "1.5e-300", "1e300", "0.12345678901234567890123", "12.5"]


def test_numbers_that_differ_still_do_and_equal_ones_are_equal() -> None:
    masker = ColumnMasker(["n"])
    texts = [*map(str, NUMBERS), *TEXTS]
    found = [masker.record(record(f'{{"n":{text}}}'.encode()))["value"] for text in texts]
    assert len(set(found)) == len(texts)
    assert len({masked(masker, {"n": number})["n"] for number in range(20_000)}) == 20_000
    for first, second in (("12.5", "12.50"), ("1e3", "1000.0"), ("0.0", "-0.0"), ("7", "7.0")):
        one, other = (masked(masker, f'{{"n":{text}}}'.encode())["n"] for text in (first, second))
        assert one == other


def test_numbers_with_the_same_hash_are_replaced_by_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_INT", 64)
    masker = ColumnMasker(["n"])
    assert {masked(masker, {"n": number})["n"] for number in range(64)} == set(range(64))


def test_numbers_of_recordings_with_one_phrase_agree() -> None:
    first, second = ColumnMasker(["n"], "p"), ColumnMasker(["n"], "p")
    numbers = [*range(100), -5, 2**40, 2.5]
    expected = {number: masked(first, {"n": number})["n"] for number in numbers}
    assert {number: masked(second, {"n": number})["n"] for number in reversed(numbers)} == expected


def test_a_number_fits_where_it_did() -> None:
    masker = ColumnMasker(["n"])
    for low, high in ((0, 2**31 - 1), (-(2**31), -1), (2**31, 2**63 - 1)):
        for number in (low, (low + high) // 2, high):
            found = masked(masker, {"n": number})["n"]
            assert low <= found <= high
            assert found != number
    assert len(str(masked(masker, {"n": 3.25})["n"]).partition(".")[2]) == 2


def test_what_is_not_masked_stays_as_it_is_written() -> None:
    told = ColumnMasker(["a"]).record(record(b'{"a":"x","n":123456789012345678901234567890,"f":1.50,"u":"\\u00e9"}'))
    assert told["value"].partition(b",")[2] == '"n":123456789012345678901234567890,"f":1.50,"u":"é"}'.encode()


def test_names_of_fields_stay_and_are_told_and_those_of_a_map_are_replaced_as_values_are() -> None:
    value = {"user": {"name": "ada", "at": {"home": 1}}, "scores": {"ada": 1, "17": {"bob": 2}}, "by": "ada", "n": 17}
    fields = ColumnMasker(["user", "by"])
    told = masked(fields, value)
    assert (told["user"].keys(), told["user"]["at"].keys()) == ({"name", "at"}, {"home"})
    assert fields.names == {"user": {"name", "at", "home"}}
    mapped = ColumnMasker(["by", "n"], names=["scores"])
    told = masked(mapped, value)
    assert told["scores"].keys() == {told["by"], str(told["n"])}
    assert not {"ada", "bob", "17"} & {*told["scores"], *told["scores"][str(told["n"])]}
    assert told["user"] == value["user"]
    assert not mapped.names


def test_a_map_within_an_object_that_is_masked_is_masked_once_and_its_names_do_not_stay() -> None:
    value = {"user": {"name": "ada", "scores": {"ada": 1}}, "by": "ada", "n": 1}
    masker = ColumnMasker(["user", "by", "n"], names=["user.scores"])
    told = masked(masker, value)
    assert told["user"] == {"name": told["by"], "scores": {told["by"]: told["n"]}}
    assert masker.names == {"user": {"name", "scores"}}
    assert masker.met == {"user", "by", "n", "user.scores"}


def test_names_within_keys_and_headers_are_told_and_can_be_replaced() -> None:
    odd = record(b"plain text", b'{"ada":1}', [("h", b'{"bob":1}')])
    told = ColumnMasker(["key"])
    assert b"ada" in told.record(odd)["key"]
    assert told.names == {"key": {"ada"}, "headers": {"bob"}}
    mapped = ColumnMasker([], names=["key", "headers"])
    found = mapped.record(odd)
    assert found["value"] == b"plain text"
    assert b"ada" not in found["key"]
    assert b"bob" not in found["headers"][0][1]
    assert mapped.met == {"key", "headers"}
    assert not mapped.names


def test_yes_and_no_are_told_by_nobody_and_a_name_with_a_dot_is_a_column() -> None:
    masker = ColumnMasker(["ill", "user.name"])
    assert masked(masker, {"ill": True})["ill"] is masked(masker, {"ill": False})["ill"]
    assert masked(masker, {"user.name": "ada", "user": {"name": "bob"}}).keys() == {"user.name", "user"}
    assert "ada" not in str(masked(masker, {"user.name": "ada"}))


@pytest.mark.parametrize(
    "value", [b"{broken", b"[1]", b"\xff", b'{"author":"ada","author":"bob"}', b'{"x":NaN}', b"[" * 100_000]
)
def test_what_cannot_be_looked_into_cannot_be_masked(value: bytes) -> None:
    with pytest.raises(UnmaskableColumn):
        ColumnMasker(["author"]).record(record(value))
