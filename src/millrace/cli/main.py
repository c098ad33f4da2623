"""The `millrace` command: its groups, its exit codes, and how errors are shown."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from millrace import __version__
from millrace.cli.commands import (
    cassandra,
    check,
    dead,
    demo,
    doctor,
    feed,
    init,
    jars,
    kafka,
    plan,
    query,
    record,
    replay,
    run,
    schema,
    settings,
    submit,
    test,
)
from millrace.cli.commands import exec as exec_
from millrace.cli.output import say, show_error
from millrace.errors import MillraceError, RunError, described
from millrace.masking import masked
from millrace.settings import VERBOSE, old_name_notices

app = typer.Typer(
    name="millrace",
    help="Real-time data pipelines in Python on Apache Kafka and PySpark, with the broker already there.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("check")(check.check)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("submit")(submit.submit)
app.command("test")(test.run_tests)
app.command("record")(record.record)
app.command("replay")(replay.replay)
app.command("query")(query.query)
app.command("schema")(schema.schema)
app.add_typer(kafka.app, name="kafka")
app.add_typer(cassandra.app, name="cassandra")
app.add_typer(feed.app, name="feed")
app.add_typer(dead.app, name="dead")
app.add_typer(jars.app, name="jars")
app.command("exec", context_settings=exec_.CONTEXT)(exec_.exec_)
app.command("doctor")(doctor.doctor)
app.command("settings")(settings.settings)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"millrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    verbose: Annotated[bool, typer.Option("--verbose", help=VERBOSE.help)] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = (
        False
    ),
) -> None:
    del version
    if verbose:
        # Children and every room read the same setting, so it is set where all of them look.
        os.environ[VERBOSE.variable] = "1"
    for notice in old_name_notices():
        say(notice)


def main() -> None:
    """Run the command line; every failure is one message and an exit code."""
    try:
        app(prog_name="millrace")
    except MillraceError as error:
        show_error(error)
        _show_trace()
        sys.exit(error.exit_code)
    except OSError as error:
        refused = RunError(f"the system refused: {error.strerror or error}", why=error.filename and str(error.filename))
        show_error(refused)
        _show_trace()
        sys.exit(refused.exit_code)
    except Exception as error:
        # A mistake of ours, not of the user's: still no stack trace unless it is asked for.
        show_error(
            MillraceError(
                f"Millrace made a mistake: {described(error)}",
                hint="run it again as millrace --verbose … and report what it prints",
            )
        )
        _show_trace()
        sys.exit(1)


def _show_trace() -> None:
    """The stack trace of what is being handled, if it was asked for; no secret is in it."""
    if VERBOSE.value():
        sys.stderr.write(masked(traceback.format_exc()))


if __name__ == "__main__":
    main()
