"""The page that finds a condition: where its cause and its cure are told, in docs/errors.md or docs/checks.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_INTRO = """# Conditions

Made by `scripts/reference.py`. A message of Millrace begins with its condition, as `error[kafka.unreachable]`; so does
each problem that `millrace check` finds. Conditions do not change between versions. Here is each, with what it means;
the link leads to its cause and its cure.

| condition | what it means | where it is explained |
| --- | --- | --- |
"""


def conditions_page(docs: Path) -> str:
    """The page."""
    found = [*_rows(docs / "errors.md"), *_rows(docs / "checks.md")]
    return _INTRO + "".join(f"| `{name}` | {means} | {by} |\n" for name, means, by in sorted(found))


def _rows(page: Path) -> Iterator[tuple[str, str, str]]:
    """Condition, meaning and where it is told, of each row of a page's tables."""
    heading = ""
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if error := re.fullmatch(r"\| `([\w.-]+)` \| (\d) \| (.+?) \| .+ \|", line):
            yield error[1], _first(error[3]), f"[exit code {error[2]}](../errors.md)"
        elif problem := re.fullmatch(r"\| `([\w.-]+)` \| (.+?) \| .+ \|", line):
            yield problem[1], _first(problem[2]), f"`check`: [{heading}](../checks.md#{_anchor(heading)})"


def _first(text: str) -> str:
    """Its first sentence, whose links lead from here."""
    sentence = re.split(r"(?<=[.;]) (?=[A-Z]|the message|the line)", text)[0].rstrip(";.")
    return re.sub(r"\]\((?!http)", "](../", sentence) + "."


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).strip().replace(" ", "-")
