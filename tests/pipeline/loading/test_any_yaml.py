"""Whatever stands in a file, it becomes a model or problems, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.pipeline.checks import check
from millrace.pipeline.loading.yaml import read_yaml

from ..conftest import CONNECTORS, NAMES


def whole(data: bytes, path: Path) -> None:
    """Read, and check what was read, whatever it is."""
    path.write_bytes(data)
    model, problems = read_yaml(path, NAMES, {"A": "x"})
    assert model is not None or problems
    assert all(one.condition and one.message for one in problems)
    if model is not None:
        repr(model)
        for one in check(model, CONNECTORS):
            one.lines()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_a_model_or_problems(tmp_path: Path, data: bytes) -> None:
    whole(data, tmp_path / "any.yaml")


WORDS = st.sampled_from(
    [
        "posts",
        "tags",
        "kafka",
        "console",
        "${A}",
        "${B}",
        "${",
        "5s",
        "",
        "SELECT * FROM posts",
        "SELECT",
        "at",
        "~",
        "on",
    ]
)
SCALARS = WORDS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
ANYTHING = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=3), max_leaves=8
)
KEYS = st.sampled_from(["from", "mode", "trigger", "watermark", "static", "kafka", "schema", "sql", "top", "key"])
PARTS = st.dictionaries(KEYS, ANYTHING, max_size=5) | ANYTHING
NAMED = st.dictionaries(WORDS, PARTS, max_size=3) | ANYTHING
LISTED = st.lists(PARTS, max_size=3) | ANYTHING
FILES = st.fixed_dictionaries(
    {"name": SCALARS},
    optional={"trigger": ANYTHING, "sources": NAMED, "tables": NAMED, "sinks": LISTED, "panels": LISTED, "x": ANYTHING},
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=FILES, style=st.sampled_from([True, False, None]))
def test_any_structure_is_a_model_or_problems(tmp_path: Path, content: dict[str, Any], style: bool | None) -> None:
    whole(yaml.safe_dump(content, default_flow_style=style).encode(), tmp_path / "any.yaml")
