"""`millrace record` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from millrace.testing.recording import read_recording

Run = Callable[..., Any]
MOMENT = 1_700_000_000_000
VALUES = [b'{"author": "ada", "n": 1.50, "by": {"eve": 1}}', b'{"author":"bob"}', b"\xff broken", b'{"author":"ada"}']


@pytest.fixture
def filled(lane: str, cluster: Cluster) -> str:
    """Four records, a second apart."""
    producer = Producer(cluster, lane, Delivery(idempotence=False))
    producer.send([Record(value, b"k", MOMENT + at * 1000, (("h", b"\xff"),)) for at, value in enumerate(VALUES)])
    producer.close()
    return lane


def test_a_slice_keeps_its_bytes(run: Run, filled: str, tmp_path: Path) -> None:
    assert "there are more" not in run("record", filled).err
    data = (tmp_path / f"{filled}.records.jsonl").read_bytes()
    assert [one["value"] for one in read_recording(data, tmp_path)] == VALUES
    assert "file.unusable" in run("record", filled, code=2).err
    assert "there are more" in run("record", filled, "--max", "3", "--out", "first.jsonl").err
    run("record", filled, "--from", "1", "--to", "2023-11-14T22:13:22Z", "--out", "part.jsonl")
    (only,) = read_recording((tmp_path / "part.jsonl").read_bytes(), tmp_path)
    assert (only["offset"], only["value"], only["key"]) == (1, VALUES[1], b"k")
    assert only["headers"] == [{"key": "h", "value": b"\xff"}]


def test_columns_are_masked_the_same_way_everywhere(run: Run, filled: str, tmp_path: Path) -> None:
    told = run("record", filled, "--mask", "author", "--out", "masked.jsonl").err
    assert "1 were left out" in told
    data = (tmp_path / "masked.jsonl").read_bytes()
    first, second, third = (json.loads(one["value"])["author"] for one in read_recording(data, tmp_path))
    assert first == third != second
    assert b"ada" not in data
    assert all(one["key"] != b"k" and one["headers"][0]["value"] != b"\xff" for one in read_recording(data, tmp_path))
    run("record", filled, "--mask", "author", "--keep", "key", "--keep", "headers", "--out", "kept.jsonl")
    kept = list(read_recording((tmp_path / "kept.jsonl").read_bytes(), tmp_path))
    assert [(one["key"], one["headers"][0]["value"]) for one in kept] == [(b"k", b"\xff")] * 3
    told = run("record", filled, "--mask", "by", "--out", "names.jsonl").err
    assert "names within by are not masked: eve" in told
    assert "names within" not in run("record", filled, "--mask-names", "by", "--out", "map.jsonl").err
    assert b"eve" not in (tmp_path / "map.jsonl").read_bytes()
    both = [["--mask", "key", "--keep", "key"], ["--mask-names", "headers", "--keep", "headers"]]
    for wrong in (["--keep", "key"], *both, ["--phrase", "x"]):
        assert "option.invalid" in run("record", filled, *wrong, "--out", "none.jsonl", code=2).err
    assert "'auhtor'" in run("record", filled, "--mask", "auhtor", "--out", "none.jsonl", code=2).err
    assert not (tmp_path / "none.jsonl").exists()
