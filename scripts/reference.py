"""The reference from the code: docs/reference, and the tables of docs/connectors.md and docs/settings.md; and the
stub of the package.

python scripts/reference.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reference_commands import commands_page, flags
from reference_conditions import conditions_page
from reference_connectors import with_tables
from reference_stub import STUB, stub_text
from reference_yaml import yaml_page

from millrace.settings import SETTINGS

DOCS = Path(__file__).parents[1] / "docs"
_HEAD = "| environment variable | flag | default | what it means |\n| --- | --- | --- | --- |\n"


def pages(docs: Path = DOCS) -> dict[Path, str]:
    """Every page that is made, or has a part that is, as it must be."""
    connectors, settings = docs / "connectors.md", docs / "settings.md"
    return {
        docs / "reference/commands.md": commands_page(),
        docs / "reference/yaml.md": yaml_page(),
        docs / "reference/conditions.md": conditions_page(docs),
        STUB: stub_text(),
        connectors: with_tables(connectors.read_text("utf-8")),
        settings: with_settings(settings.read_text("utf-8")),
    }


def with_settings(page: str) -> str:
    """The page on settings, with its table made anew."""
    before, head, rest = page.partition(_HEAD)
    if not head:
        raise SystemExit("docs/settings.md: the table of settings is gone")
    after = rest.partition("\n\n")[2]
    how = flags()
    rows = [
        f"| `{one.variable}` | {how[one.name]} | {one.shown_default or one.default} | {one.help} |" for one in SETTINGS
    ]
    return before + head + "\n".join(rows) + "\n\n" + after


def stale() -> list[Path]:
    """The pages that say something else than the code."""
    return [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]


def main() -> None:
    """Write what has changed, or only tell it."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--check", action="store_true", help="write nothing; exit code 1 when something would change")
    check = given.parse_args().check
    old = stale()
    for path, text in pages().items():
        if path in old and not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(path.relative_to(DOCS.parent))
    if check and old:
        sys.exit(f"not what the code says: {', '.join(str(one) for one in old)}; run scripts/reference.py")


if __name__ == "__main__":
    main()
