"""What the site needs beside its pages: colours for code, and links that leave docs/ without a page to lead to."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:examples|bench|src|tests|scripts|web)\b[^)#]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the style sheet of code, light and dark."""
    light = HtmlFormatter(style="default").get_style_defs(".codehilite")
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-bs-theme=dark] .codehilite")
    files.append(File.generated(config, "code.css", content=f"{light}\n{dark}\n"))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name what lies in the source beside docs/ by its path: the site does not have it."""
    return _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}` of the source)", markdown)
