"""`millrace feed NAME`: write events to a topic; the fields of a feed are its options."""

from __future__ import annotations

import dataclasses
import inspect
import re
import time
import traceback
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from millrace.cli.app import RUN_PANEL, App, Command, Group, HelpPanel, declared, with_options
from millrace.cli.options import KafkaOptions
from millrace.cli.output import closed_output_allowed, delivered_line, print_line, progress_line
from millrace.cli.signals import until_stopped
from millrace.errors import FeedFailed, InvalidOption, MillraceError, SourceLocation
from millrace.settings import STATE
from millrace.units import parse_duration, parse_rate, parse_time

if TYPE_CHECKING:
    from millrace.connectors.base.record_sink import RecordSink
    from millrace.feeds.base.api import Feed, Run
    from millrace.feeds.base.pump import PumpResult

_FEED_PANEL = HelpPanel("Feed")
_METAVARS: dict[Any, str] = {int: "N", float: "N", parse_duration: "DURATION", parse_rate: "RATE", parse_time: "TIME"}
"""What a value is, by the type or the parser of a field; else TEXT."""


class FeedGroup(Group):
    """One command for each feed, created when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all feeds, built in or installed."""
        del ctx
        from millrace.feeds.base.api import FEEDS

        return FEEDS.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a feed, also of one in a file of the user (`./my_feed.py`)."""
        del ctx
        from millrace.feeds.base.api import FEEDS

        return _command(cmd_name, FEEDS.load(cmd_name))


app = App(cls=FeedGroup, help="Write events to a topic: simulated, from files, from public streams.")


@app.callback()
def _group() -> None:
    """Write events to a topic: simulated, from files, over HTTP, or from public streams."""


def run_feed(
    name: str,
    make_feed: Any,
    *,
    topic: str | None = RUN_PANEL.option("The topic to write to.", "TOPIC", show_default="the feed's name"),
    rate: str | None = RUN_PANEL.option("Maximum rate, as 500/s or 30/m.", "RATE", show_default="as fast as possible"),
    for_: str | None = RUN_PANEL.option("Stop after this time.", "DURATION"),
    count: int | None = RUN_PANEL.option("Maximum number of records; then stop.", "N", min=1),
    to: str = RUN_PANEL.option("kafka, console (print) or files.", "SINK", default="kafka"),
    out: str | None = RUN_PANEL.option("With --to files: the file.", "FILE"),
    kafka: KafkaOptions,
) -> None:
    """Run a feed until it ends, --for, --count or Ctrl-C."""
    from millrace.connectors.base.record_sink import RECORD_SINKS, SinkTarget
    from millrace.feeds.base.api import Cursor, Run

    topic = topic or name
    duration = None if for_ is None else parse_duration(for_)
    feed = make_feed()
    with until_stopped() as stop:
        target = SinkTarget(topic, out, kafka.cluster, print_line, stop, feed.delivery_timeout)
        sink = RECORD_SINKS.load(to)(target)
        limit = None if rate is None else parse_rate(rate)
        run = Run(limit, count, stop, Cursor(_cursor_folder(name, sink.place)), print_line)
        _write(feed, sink, run, duration)


def _write(feed: Feed, sink: RecordSink, run: Run, duration: float | None) -> None:
    from millrace.feeds.base.pump import pump

    started = time.monotonic()
    of = f" of {run.count:,}" if run.count else ""

    def on_progress(result: PumpResult) -> None:
        speed = result.tally.delivered / result.seconds if result.seconds else 0.0
        update(f"{result.tally.delivered:,}{of} delivered, {speed:,.0f} records/s")

    try:
        with closed_output_allowed(), progress_line() as update:
            pump(feed, sink, run, on_progress=on_progress, duration=duration)
    except (MillraceError, OSError):
        raise
    except Exception as error:
        raise _failure(feed, error) from error
    finally:
        tally = sink.tally()
        print_line(delivered_line(tally.delivered, tally.failed, time.monotonic() - started))


def _failure(feed: Feed, error: Exception) -> FeedFailed:
    """Return the error for an exception in the feed's own code, with the line of its file that raised it."""
    file = inspect.getfile(type(feed))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = SourceLocation(file, lines[-1]) if lines else SourceLocation(file)
    return FeedFailed(f"the feed raised {type(error).__name__}: {error}", place=place, hint="fix the feed's code")


def _cursor_folder(name: str, place: str | None) -> Path | None:
    """Return where the position of a feed is stored: one folder for each place that it writes to, if it is durable."""
    if place is None:
        return None
    readable = re.sub(r"[^\w.-]+", "_", place)[:60]
    return STATE.value() / "feeds" / f"{name}-{readable}-{sha256(place.encode()).hexdigest()[:8]}"


def _command(name: str, kind: type[Any]) -> Any:
    """Return a command whose options are those of every feed and the fields of this one."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    hints = get_type_hints(kind)
    run = with_options(run_feed)
    common = [each for each in inspect.signature(run).parameters.values() if each.name not in ("name", "make_feed")]
    clash = fields.keys() & {parameter.name for parameter in common}
    if clash:
        raise InvalidOption(f"{name}: every feed has {', '.join(sorted(clash))}", hint="use another name for the field")
    own = [_parameter(field, hints[field.name]) for field in fields.values()]

    def command(**given: Any) -> None:
        chosen = {field: given.pop(field) for field in fields}
        short_name = name.removesuffix(".py").rpartition("/")[2]
        run(name=short_name, make_feed=lambda: kind(**_values(fields, chosen)), **given)

    command.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *common)}
    command.__doc__ = inspect.getdoc(kind)
    single = typer.Typer(add_completion=False)
    single.command(name, cls=Command)(command)
    return typer.main.get_command(single)


def _parameter(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """Return a field as a parameter for Typer: text if the field parses it, and None if it is not given."""
    about, parse, flag = field.metadata, field.metadata.get("parse"), f"--{field.name.replace('_', '-')}"
    required = field.default is dataclasses.MISSING or field.default is ...
    shown = about.get("shown_default") or (None if field.default in (None, "") else str(field.default))
    help_ = about.get("help") or ""
    settings: dict[str, Any] = {"show_default": False if required else (shown or False)}
    if about.get("variable"):
        settings |= {"envvar": about["variable"], "show_default": False}
    if hint is bool:
        return declared(field.name, bool, _FEED_PANEL.option(help_, names=flag, default=field.default, **settings))
    kind = str if parse else next(each for each in getattr(hint, "__args__", (hint,)) if each is not type(None))
    if about.get("argument"):
        argument = typer.Argument(... if required else None, help=help_, **settings)
        return declared(field.name, kind if required else kind | None, argument)
    metavar = _METAVARS.get(parse or kind, "TEXT")
    return declared(field.name, kind | None, _FEED_PANEL.option(help_, metavar, names=flag, **settings))


def _values(fields: dict[str, dataclasses.Field[Any]], given: dict[str, Any]) -> dict[str, Any]:
    parsers = {name: field.metadata.get("parse") or (lambda value: value) for name, field in fields.items()}
    values = {name: parsers[name](value) for name, value in given.items() if value is not None}
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in values]
    if missing:
        raise InvalidOption(f"{', '.join(f'--{name}' for name in missing).replace('_', '-')} is needed")
    return values
