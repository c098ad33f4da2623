"""The threat model in docs/security.md names tests, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text("utf-8")
MODEL = PAGE[PAGE.index("## Threat model") : PAGE.index("## One description")]


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:tests/\w+/|bench/)?\w+\.py)`", MODEL))
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / (name if "/" in name else f"tests/security/{name}")).is_file()]


def test_every_suite_of_attacks_is_named() -> None:
    suites = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert not [name for name in suites if f"`{name}`" not in MODEL]


def test_every_line_has_its_tests() -> None:
    rows = [line for line in MODEL.splitlines() if line.startswith("| ")][2:]
    assert not [row for row in rows if ".py`" not in row.rstrip(" |").rpartition("|")[2]]
