"""Columns that are masked: the same value always by the same one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.testing.disguise import Disguise, Unmaskable


def record(value: object, key: bytes | None = b"k") -> dict[str, Any]:
    return {"key": key, "value": value if isinstance(value, bytes) else json.dumps(value).encode()}


def masked(disguise: Disguise, value: object) -> Any:
    return json.loads(disguise.record(record(value))["value"])


def test_the_same_value_becomes_the_same_and_others_stay() -> None:
    disguise = Disguise(["author", "user.mail", "n"])
    first = masked(disguise, {"author": "ada", "text": "hi", "user": {"mail": "ada"}, "n": 7, "x": None})
    second = masked(disguise, {"author": "ada", "n": 8})
    assert first["author"] == first["user"]["mail"] == second["author"] != "ada"
    assert first["text"] == "hi"
    assert isinstance(first["n"], int)
    assert first["n"] != second["n"]
    assert masked(Disguise(["author"]), {"author": "ada"})["author"] != first["author"]
    assert disguise.met == {"author", "user.mail", "n"}


def test_recordings_of_one_phrase_agree() -> None:
    assert masked(Disguise(["a"], "p"), {"a": "x"}) == masked(Disguise(["a"], "p"), {"a": "x"})


def test_bytes_in_which_nothing_is_masked_stay_as_they_are() -> None:
    odd = b'{ "text" : "hi", "n": 1e3 }'
    assert Disguise(["author"]).record(record(odd))["value"] == odd
    assert Disguise([]).record(record(b"\xff"))["value"] == b"\xff"


def test_the_key_can_be_masked_and_lists_are_masked_within() -> None:
    disguise = Disguise(["key", "tags", "people.name"])
    told = disguise.record(record({"tags": ["a", "b", "a"], "people": [{"name": "ada"}, {"name": None}]}))
    assert told["key"].startswith(b"masked-")
    value = json.loads(told["value"])
    assert value["tags"][0] == value["tags"][2] != value["tags"][1]
    assert value["people"][1]["name"] is None


@pytest.mark.parametrize("value", [b"{broken", b"[1]", b"\xff"])
def test_what_cannot_be_looked_into_cannot_be_masked(value: bytes) -> None:
    with pytest.raises(Unmaskable):
        Disguise(["author"]).record(record(value))
