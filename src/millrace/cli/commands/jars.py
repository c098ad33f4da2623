"""`millrace jars`: fetch jars from Maven, list them, and print where they are."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millrace.cli.app import RUN_PANEL, App
from millrace.cli.options import AsJson
from millrace.cli.output import fetching, print_line, show_json, show_table
from millrace.cli.signals import interruptible
from millrace.errors import InvalidOption, UnknownName
from millrace.units import format_bytes

app = App(help="Jars from Maven: fetch them in advance, list them.")


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", show_default=False, help="Jar sets.")] = None,
    every: bool = RUN_PANEL.flag("Fetch every set, to work offline.", names="--all"),
) -> None:
    """Fetch jar sets that are missing."""
    from millrace.services import jars

    sets = jars.jar_sets()
    if not names and not every:
        raise InvalidOption("no jar set was named", hint=f"name some of {', '.join(sets)}, or give --all")
    for name in sets if every else names or []:
        if name in sets and sets[name].present():
            print_line(f"{name}: already present")
            continue
        with interruptible(), fetching() as progress:
            fetched = jars.ensure(name, progress)
        print_line(f"{name}: {len(fetched.artifacts)} jars, {format_bytes(fetched.size())}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List jar sets and whether they are present."""
    from millrace.services import jars

    sets = jars.jar_sets().values()
    if as_json:
        show_json(
            [
                {
                    "name": each.name,
                    "about": each.about,
                    "present": each.present(),
                    "bytes": each.size(),
                    "path": str(each.folder),
                    "artifacts": [jar.coordinates for jar in each.artifacts],
                }
                for each in sets
            ]
        )
        return
    rows = [
        (
            each.name,
            "ready" if each.present() else "not fetched",
            len(each.artifacts),
            format_bytes(each.size()),
            each.about,
        )
        for each in sets
    ]
    show_table(("set", "state", "jars", "size", "what it is"), rows)


@app.command()
def path(name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="A jar set.")]) -> None:
    """Print the folder of a jar set."""
    from millrace.services import jars

    jar_set = jars.jar_set(name)
    if not jar_set.present():
        raise UnknownName(f"the jar set {name!r} is not fetched yet", hint=f"millrace jars fetch {name}")
    sys.stdout.write(f"{jar_set.folder}\n")
