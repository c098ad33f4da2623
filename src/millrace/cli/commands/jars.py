"""`millrace jars`: what is fetched from Maven, and where it lies."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millrace.cli.options import AsJson
from millrace.cli.output import fetching, say, show_json, show_table
from millrace.cli.signals import interruptible
from millrace.errors import InvalidOption, UnknownName
from millrace.units import format_bytes

app = typer.Typer(help="Jars from Maven: fetch them ahead, see what is there.", no_args_is_help=True)


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", show_default=False, help="Jar sets.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every set: prepares this machine for work offline.")] = False,
) -> None:
    """Fetch jar sets that are not there yet."""
    from millrace.services import jars

    known = jars.jar_sets()
    if not names and not every:
        raise InvalidOption("which jar sets?", hint=f"name some of {', '.join(known)}, or give --all")
    for name in known if every else names or []:
        if name in known and known[name].present():
            say(f"{name}: is there already")
            continue
        with interruptible(), fetching() as progress:
            found = jars.ensure(name, progress)
        say(f"{name}: {len(found.artifacts)} jars, {format_bytes(found.size())}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List jar sets and whether they are there."""
    from millrace.services import jars

    found = jars.jar_sets().values()
    if as_json:
        show_json(
            [
                {
                    "name": one.name,
                    "about": one.about,
                    "present": one.present(),
                    "bytes": one.size(),
                    "path": str(one.folder),
                    "artifacts": [jar.coordinates for jar in one.artifacts],
                }
                for one in found
            ]
        )
        return
    rows = [
        (one.name, "ready" if one.present() else "not fetched", len(one.artifacts), format_bytes(one.size()), one.about)
        for one in found
    ]
    show_table(("set", "state", "jars", "size", "what it is"), rows)


@app.command()
def path(name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="A jar set.")]) -> None:
    """Print the folder of a jar set that is there."""
    from millrace.services import jars

    found = jars.jar_set(name)
    if not found.present():
        raise UnknownName(f"the jar set {name!r} is not fetched yet", hint=f"millrace jars fetch {name}")
    sys.stdout.write(f"{found.folder}\n")
