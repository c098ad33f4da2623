"""The `millrace` command: its sub-commands, its exit codes, and how errors are shown."""

from __future__ import annotations

import os
import sys
import traceback

import typer

from millrace import __version__
from millrace.cli.app import App
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
from millrace.cli.output import print_line, show_error
from millrace.errors import MillraceError, RunError, described
from millrace.masking import masked
from millrace.settings import VERBOSE, old_name_notices

app = App(
    name="millrace",
    help="Real-time data pipelines in Python on Apache Kafka and PySpark, with a Kafka broker included.",
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


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    verbose: bool = typer.Option(False, "--verbose", help=VERBOSE.help),
    _: bool = typer.Option(False, "--version", help="Show the version.", callback=_print_version, is_eager=True),
) -> None:
    if verbose:
        # Child processes and every package read it from the environment.
        os.environ[VERBOSE.variable] = "1"
    for notice in old_name_notices():
        print_line(notice)


def main() -> None:
    """Run the command line; report a failure as a message and an exit code, with a stack trace only if --verbose."""
    try:
        app(prog_name="millrace")
    except Exception as error:
        failure = _failure(error)
        show_error(failure)
        if VERBOSE.value():
            sys.stderr.write(masked(traceback.format_exc()))
        sys.exit(failure.exit_code)


def _failure(error: Exception) -> MillraceError:
    if isinstance(error, MillraceError):
        return error
    if isinstance(error, OSError):
        return RunError(f"the system refused: {error.strerror or error}", why=error.filename and str(error.filename))
    hint = "run it again as millrace --verbose … and report the output"
    return MillraceError(f"internal error of Millrace: {described(error)}", hint=hint)


if __name__ == "__main__":
    main()
