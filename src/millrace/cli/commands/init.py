"""`millrace init`: create a project whose first run and first test work."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

import millrace
from millrace.cli.app import RUN_PANEL
from millrace.cli.output import print_line
from millrace.errors import FileUnusable

_TEMPLATES = Path(millrace.__file__).parent / "templates"
_COMMON = {
    "Makefile": "Makefile.in",
    "README.md": "README.md.in",
    "requirements.txt": "requirements.txt.in",
    ".gitignore": "gitignore.in",
    ".github/workflows/test.yaml": "ci.in",
}


Template = StrEnum("Template", ["posts", "logs", "sensors", "blank"])
_MAX_NAME_CHARS = 100
_FEEDS = {Template.posts: "posts", Template.logs: "weblogs", Template.sensors: "sensors"}


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The project's folder; it is created if it does not exist.")
    ],
    template: Annotated[Template, RUN_PANEL.option("What the pipeline is about.")] = Template.posts,
    python: bool = RUN_PANEL.flag("The pipeline in Python, or in YAML with SQL.", names="--python/--yaml"),
) -> None:
    """Create a project: a pipeline, a test, sample data, a Makefile, CI. Nothing is overwritten."""
    if file := next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None):
        raise FileUnusable(f"{file} is a file, not a folder", hint="choose another folder")
    files = _files(folder, template, "pipeline.py" if python else "pipeline.yaml")
    if existing := [name for name in files if (folder / name).exists()]:
        raise FileUnusable(
            f"{folder} already has {', '.join(existing)}", why="nothing is overwritten", hint="choose another folder"
        )
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    except OSError as error:
        raise FileUnusable(f"{path} cannot be written", why=error.strerror, hint="choose another folder") from None
    print_line(f"{len(files)} files in {folder}; now:\n  cd {quote(str(folder))}\n  millrace test\n  make run")


def _files(folder: Path, template: Template, file: str) -> dict[str, str]:
    """Return the files of a project with their contents."""
    own = _TEMPLATES / template.value
    words = {
        "name": _name(folder),
        "file": file,
        "version": millrace.__version__,
        "about": (own / "about.in").read_text("utf-8").strip(),
        "source": _FEEDS.get(template, "lines"),
        "feed": _FEEDS.get(template, "posts"),
    }
    forms = {name: _TEMPLATES / "common" / form for name, form in _COMMON.items()}
    forms |= {name: own / f"{name}.in" for name in (file, "pipeline.test.yaml")}

    def filled(form: Path) -> str:  # only the words in braces that are defined: YAML has other braces
        return re.sub(r"\{(\w+)\}", lambda match: words.get(match[1], match[0]), form.read_text("utf-8"))

    data = {f"data/{path.name}": path.read_text("utf-8") for path in sorted((own / "data").iterdir())}
    return {name: filled(form) for name, form in forms.items()} | data


def _name(folder: Path) -> str:
    """Return a pipeline's name, made from that of its folder: in ASCII letters, and not YAML's null."""
    letters = unicodedata.normalize("NFKD", folder.absolute().name).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", letters)[:_MAX_NAME_CHARS].strip("-")
    return name if name and name.lower() != "null" else "pipeline"
