"""`millrace init`: a project to begin with, whose first run and first test work at once."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

import millrace
from millrace.cli.output import say
from millrace.errors import FileUnusable

_TEMPLATES = Path(millrace.__file__).parent / "templates"
_COMMON = {
    "Makefile": "Makefile.in",
    "README.md": "README.md.in",
    "requirements.txt": "requirements.txt.in",
    ".gitignore": "gitignore.in",
    ".github/workflows/test.yaml": "ci.in",
}


class Template(StrEnum):
    """What a project may begin as."""

    posts = "posts"
    logs = "logs"
    sensors = "sensors"
    blank = "blank"


_LONGEST = 100
"""Characters that a pipeline's name may have."""
_FEEDS = {Template.logs: "weblogs", Template.sensors: "sensors"}


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's folder; it is made if it is missing.")],
    template: Annotated[Template, typer.Option("--template", help="What the pipeline is about.")] = Template.posts,
    python: Annotated[
        bool, typer.Option("--python/--yaml", help="The pipeline in Python, or in YAML with SQL.")
    ] = False,
) -> None:
    """Make a project: a pipeline, a test that passes, sample data, a Makefile, CI. Nothing is overwritten."""
    if blocking := next((one for one in (folder, *folder.parents) if one.exists() and not one.is_dir()), None):
        raise FileUnusable(f"{blocking} is a file, not a folder", hint="choose another folder")
    files = _files(folder, template, "pipeline.py" if python else "pipeline.yaml")
    if there := [name for name in files if (folder / name).exists()]:
        raise FileUnusable(
            f"{folder} has {', '.join(there)} already", why="nothing is overwritten", hint="choose another folder"
        )
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    except OSError as error:
        raise FileUnusable(f"{path} cannot be written", why=error.strerror, hint="choose another folder") from None
    say(f"{len(files)} files in {folder}; now:\n  cd {quote(str(folder))}\n  millrace test\n  make run")


def _files(folder: Path, template: Template, file: str) -> dict[str, str]:
    """Every file of a project, and what is in it."""
    own = _TEMPLATES / template.value
    source = {Template.logs: "weblogs", Template.sensors: "sensors", Template.blank: "lines"}.get(template, "posts")
    words = {
        "name": _name(folder),
        "file": file,
        "version": millrace.__version__,
        "about": (own / "about.in").read_text("utf-8").strip(),
        "source": source,
        "feed": _FEEDS.get(template, "posts"),
    }
    made = {name: _TEMPLATES / "common" / form for name, form in _COMMON.items()}
    made |= {one: own / f"{one}.in" for one in (file, "pipeline.test.yaml")}
    filled = {name: _filled(path.read_text("utf-8"), words) for name, path in made.items()}
    return filled | {f"data/{one.name}": one.read_text("utf-8") for one in sorted((own / "data").iterdir())}


def _filled(text: str, words: dict[str, str]) -> str:
    """The words in braces, of those that are known: YAML has braces of its own."""
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), text)


def _name(folder: Path) -> str:
    """A pipeline's name from that of its folder: in plain letters, and not the word that means none in YAML."""
    letters = unicodedata.normalize("NFKD", folder.absolute().name).encode("ascii", "ignore").decode()
    found = re.sub(r"[^A-Za-z0-9_-]+", "-", letters)[:_LONGEST].strip("-")
    return found if found and found.lower() != "null" else "pipeline"
