"""YAML that unfolds, nests, repeats or names types: one error with its place, within bounds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conftest import CommandLine

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
SOUND = "name: p\nsources: {a: {kafka: a, format: text%s}}\nsinks: [{from: a, console: }]\n"
REFUSED = {
    "aliases of aliases": (LAUGHS, "file.too-large"),
    "an alias of itself": ("a: &a [*a]\n", "file.syntax"),
    "brackets": ("a: " + "[" * 100_000, "file.too-nested"),
    "braces": ("{a: " * 100_000, "file.too-nested"),
    "lists in lists": ("- " * 50_000 + "x", "file.too-nested"),
    "many values": ("a: [" + "x," * 60_000 + "x]", "file.too-large"),
    "many bytes": ("a: " + "x" * 2_000_000, "file.too-large"),
    "a key that is there twice": ("name: p\nname: q\n", "key.duplicate"),
    "an object of Python's": ("name: !!python/object/apply:os.system ['touch reached']\n", "value.type"),
    "a module of Python's": ("name: !!python/module:os\n", "value.type"),
    "a tag of its own": ("name: !secret x\n", "value.type"),
    "documents": ("name: p\n---\nname: q\n", "file.syntax"),
    "no UTF-8": ("name: \udcff\n", "file.not-utf8"),
    "UTF-16": ("name: p\n".encode("utf-16").decode("latin-1"), "file.not-utf8"),
    "a sign that YAML has not": ("name: \x00\n", "file.syntax"),
    "a large number": (SOUND % f", max_per_batch: {'9' * 5000}", "option.invalid"),
    "a large power": (SOUND % ", max_per_batch: 1e999999999", "option.invalid"),
    "a number in base 60": (SOUND % ", max_per_batch: 1:1:1", "option.invalid"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_yaml_ends_in_an_error(tmp_path: Path, name: str) -> None:
    text, condition = REFUSED[name]
    encoding = "latin-1" if name == "UTF-16" else "utf-8"
    (tmp_path / "p.yaml").write_bytes(text.encode(encoding, "surrogateescape"))
    ran = CommandLine(tmp_path, dict(os.environ))("check", "--json", "p.yaml", code=2)
    told = [one for one in json.loads(ran.stdout) if one["condition"] == condition]
    assert told
    assert {one["file"] for one in told} == {"p.yaml"}
    assert not (tmp_path / "reached").exists()
    assert len(ran.stdout) < 20_000
