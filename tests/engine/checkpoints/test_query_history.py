"""What ran last: which start made a checkpoint as it is, whatever was tried since."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.engine.checkpoints.query_history import last_batch, position, record_start, recorded_start
from millrace.errors import MillraceError


def done(state: Path, batch: int) -> None:
    """A batch that is committed, as Spark notes it."""
    for folder in ("offsets", "commits"):
        path = state / "checkpoints" / "q" / folder / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('v1\n{"conf":{"spark.sql.shuffle.partitions":"3"}}\n{"posts":{"0":7}}')


def noted(state: Path) -> str | None:
    found = recorded_start(state, "q")
    return None if found is None else str(found.snapshot["by"])


def test_a_start_counts_when_it_has_done_a_batch(tmp_path: Path) -> None:
    record_start(tmp_path, "q", {"by": "first"}, {})
    assert noted(tmp_path) is None
    done(tmp_path, 0)
    assert noted(tmp_path) == "first"
    record_start(tmp_path, "q", {"by": "second"}, {})
    assert noted(tmp_path) == "first"
    record_start(tmp_path, "q", {"by": "third"}, {})
    assert noted(tmp_path) == "first"
    done(tmp_path, 1)
    assert noted(tmp_path) == "third"


def test_a_checkpoint_that_was_removed_is_forgotten(tmp_path: Path) -> None:
    record_start(tmp_path, "q", {"by": "first"}, {})
    done(tmp_path, 5)
    for path in (tmp_path / "checkpoints" / "q" / "commits").iterdir():
        path.unlink()
    assert noted(tmp_path) is None
    record_start(tmp_path, "q", {"by": "second"}, {})
    done(tmp_path, 0)
    assert noted(tmp_path) == "second"


def test_how_far_a_checkpoint_is(tmp_path: Path) -> None:
    assert position(tmp_path, "q") is None
    assert last_batch(tmp_path, "q") == -1
    for batch in (2, 10, 9):
        done(tmp_path, batch)
    found = position(tmp_path, "q")
    assert found is not None
    assert (found.batch, found.settings, found.offsets) == (
        10,
        {"spark.sql.shuffle.partitions": "3"},
        ({"posts": {"0": 7}},),
    )


@pytest.mark.parametrize("text", ["{", json.dumps({"version": 99, "ran": []}), "[]"])
def test_what_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "ran").mkdir()
    (tmp_path / "ran" / "q.json").write_text(text)
    with pytest.raises(MillraceError) as raised:
        recorded_start(tmp_path, "q")
    assert raised.value.condition == "state.mismatch"
