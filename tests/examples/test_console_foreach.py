"""examples/console-foreach."""

from __future__ import annotations

import shutil
import sys

import pytest
from pyspark.sql import SparkSession

from .conftest import EXAMPLES, Stage

HANDLERS = "examples/console-foreach/handlers.py"
SAID = ["@quiet_otter: Good morning", "@brave_kettle: Tea first", "@amber_finch: Guten Morgen"]


def test_posts_are_printed_and_written_down(
    stage: Stage, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(EXAMPLES / "console-foreach", stage.folder / "example")
    places = {"posts": stage.sample("console-foreach/data/posts.jsonl")}
    if stage.form == "yaml":
        places |= {f"{HANDLERS}:{name}": f"{copy}/handlers.py:{name}" for name in ("show", "journal")}
    else:  # the pipeline imports what stands beside it, and so must the workers
        spark.sparkContext.addPyFile(f"{copy}/handlers.py")
        monkeypatch.delitem(sys.modules, "handlers", raising=False)
    stage.run("console-foreach", places, folder=copy)
    assert capsys.readouterr().out.splitlines() == [f"batch 0  {line}" for line in SAID]
    written = [line for file in (copy / "out").iterdir() for line in file.read_text().splitlines()]
    assert written == SAID
