"""docs/extending.md shows the files of examples/plugin as they are, and its other classes work."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.connectors.base.record_sink import RECORD_SINKS, SinkTarget
from millrace.errors import InvalidSchema
from millrace.feeds.base.api import FEEDS, Run
from millrace.formats.base import FORMATS
from millrace.pipeline.schema import parse_schema

from .test_documentation import BLOCK, ROOT

PAGE = (ROOT / "docs/extending.md").read_text("utf-8")
PLUGIN = ROOT / "examples/plugin"
SHOWN = ("pyproject.toml", *(f"src/millrace_sqlite/{name}.py" for name in ("__init__", "sink", "source", "stream")))
TESTS = ("tests/pipeline.yaml", "tests/test_sqlite.py")


@pytest.fixture
def block(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes the code block of a file, and returns its path."""

    def write(name: str) -> str:
        (text,) = [text for _, text in BLOCK.findall(PAGE) if text.startswith(f"# {name}\n")]
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("name", [*SHOWN, *TESTS])
def test_the_page_shows_the_file(name: str) -> None:
    assert (PLUGIN / name).read_text("utf-8") in [text for _, text in BLOCK.findall(PAGE)]


def test_the_page_shows_every_file() -> None:
    files = {str(path.relative_to(PLUGIN)) for path in PLUGIN.rglob("*.*") if path.suffix in (".py", ".toml", ".yaml")}
    assert files == {*SHOWN, *TESTS}


def test_the_feed_gives_records(block: Callable[[str], str]) -> None:
    feed = FEEDS.load(block("clicks.py"))(buttons=1)  # type: ignore[call-arg]
    (batch,) = islice(feed.batches(Run()), 1)
    assert batch.records[0].key == b"button-0"


def test_the_sink_of_feeds_counts_records(block: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    clicks = FEEDS.load(block("clicks.py"))()
    sink = RECORD_SINKS.load(block("shout.py"))(SinkTarget())
    (batch,) = islice(clicks.batches(Run()), 1)
    sink.write(batch.records[:2])
    assert sink.close().delivered == 2
    assert capsys.readouterr().out == "CLICK\nCLICK\n"


def test_the_format_decodes_good_and_bad_records(block: Callable[[str], str]) -> None:
    logfmt = FORMATS.load(block("logfmt.py"))()
    with pytest.raises(InvalidSchema):
        logfmt.columns(None)
    lines = pa.array([b"level=info path=/", b"no pairs", None, b"level=warn"])
    decoded = logfmt.decoder(parse_schema("level string, path string")).decode(lines)
    assert decoded.rows.to_pylist() == [{"level": "info", "path": "/"}, {"level": "warn", "path": None}]
    assert decoded.good is not None
    assert decoded.good.to_pylist() == [0, 3]
    assert [bad.index for bad in decoded.bad] == [1, 2]
