"""Every condition that check can tell is explained, and the examples of the page on pipelines are sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millrace.cli.commands.check import load_sound
from millrace.errors import InvalidSchema

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millrace"
CONDITION = re.compile(r'"((?:[a-z]+\.)[a-z0-9-]+)"')
MADE = re.compile(r'(?:Mistake|Problem|NotFound)\(\s*"([a-z0-9.-]+)"')


def conditions() -> set[str]:
    """Every condition in the rules, the loader and the connectors."""
    rules = [
        *(SOURCE / "pipeline/checks").glob("*.py"),
        *(SOURCE / f"pipeline/loading/{name}.py" for name in ("yaml_document", "yaml_values", "yaml", "yaml_include")),
    ]
    found = {name for path in rules for name in CONDITION.findall(path.read_text("utf-8"))}
    others = [
        *(SOURCE / "cli").glob("*.py"),
        *(SOURCE / "connectors").rglob("*.py"),
        *(SOURCE / "engine").rglob("*.py"),
        *(SOURCE / "pipeline").rglob("*.py"),
    ]
    found |= {name for path in others for name in MADE.findall(path.read_text("utf-8"))}
    return found | {"pipeline.invalid", "schema.missing", InvalidSchema.condition}


def test_every_condition_of_check_is_explained() -> None:
    page = (ROOT / "docs/checks.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z0-9.-]+)` \| .+ \| .+ \|$", page, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == conditions()


@pytest.mark.parametrize("kind", ["yaml", "python"])
@pytest.mark.parametrize(("name", "pipeline"), [("pipelines", "trending"), ("panels", "rooms")])
def test_the_examples_of_a_page_are_sound(kind: str, name: str, pipeline: str, tmp_path: Path) -> None:
    page = (ROOT / f"docs/{name}.md").read_text("utf-8")
    blocks = re.findall(rf"```{kind}\n(?!# udf.py)(.*?)```", page, re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        named = re.match(r"# (\S+)\n", block)  # a file of a project
        file = tmp_path / (named[1] if named else f"example{number}.{'py' if kind == 'python' else kind}")
        file.parent.mkdir(exist_ok=True)
        file.write_text(block)
        if "sinks:" in block or "Pipeline(" in block:
            assert load_sound(str(file)).name == (file.stem if named else pipeline)
