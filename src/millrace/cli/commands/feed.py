"""`millrace feed NAME`: events into a topic; each feed's own options come from its fields."""

from __future__ import annotations

import dataclasses
import inspect
import re
import time
import traceback
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, chosen_cluster
from millrace.cli.output import delivered_line, progress_line, reader_may_leave, say
from millrace.cli.signals import until_stopped
from millrace.errors import FeedFailed, InvalidOption, MillraceError, SourceLocation
from millrace.settings import STATE
from millrace.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from millrace.connectors.base.record_sink import RecordSink
    from millrace.feeds.base.api import Feed, Run
    from millrace.feeds.base.pump import PumpResult

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class FeedGroup(TyperGroup):
    """One command a feed, made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every feed, built in or installed."""
        del ctx
        from millrace.feeds.base.api import FEEDS

        return FEEDS.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a feed; also of one in a file of the user's (`./my_feed.py`)."""
        del ctx
        from millrace.feeds.base.api import FEEDS

        return _command(cmd_name, FEEDS.load(cmd_name))


app = typer.Typer(
    cls=FeedGroup, no_args_is_help=True, help="Events into a topic: simulated, from files, from the world."
)


@app.callback()
def _group() -> None:
    """Events into a topic: simulated, from files, over HTTP, or from public streams."""


def run_feed(
    name: str,
    make_feed: Any,
    topic: Annotated[
        str | None, typer.Option("--topic", show_default="the feed's name", help="The topic to write to.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", show_default="as fast as it can", help="As 500/s or 30/m.")
    ] = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Stop after so long.")] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Stop after so many records.")] = None,
    to: Annotated[str, typer.Option("--to", metavar="SINK", help="kafka, console (print) or files.")] = "kafka",
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", help="With --to files: the file.")] = None,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Run a feed until it ends, --for, --count or Ctrl-C."""
    from millrace.connectors.base.record_sink import SINKS, SinkTarget
    from millrace.feeds.base.api import Cursor, Run

    topic = topic or name
    duration = None if for_ is None else parse_duration(for_)
    pace = None if rate is None else parse_rate(rate)
    feed = make_feed()
    with until_stopped() as stop:
        target = SinkTarget(
            topic, out, lambda: chosen_cluster(kafka, kafka_config, data), say, stop, feed.delivery_timeout
        )
        sink = SINKS.load(to)(target)
        run = Run(pace, count, stop, Cursor(_cursor_folder(name, sink.place)), say)
        _pour(feed, sink, run, duration)


def _pour(feed: Feed, sink: RecordSink, run: Run, duration: float | None) -> None:
    from millrace.feeds.base.pump import pump

    started = time.monotonic()
    of = f" of {run.count:,}" if run.count else ""

    def tell(outcome: PumpResult) -> None:
        speed = outcome.tally.delivered / outcome.seconds if outcome.seconds else 0.0
        show(f"{outcome.tally.delivered:,}{of} delivered, {speed:,.0f} records/s")

    try:
        with reader_may_leave(), progress_line() as show:
            pump(feed, sink, run, on_progress=tell, duration=duration)
    except (MillraceError, OSError):
        raise
    except Exception as error:
        raise _mistake(feed, error) from error
    finally:
        tally = sink.tally()
        say(delivered_line(tally.delivered, tally.failed, time.monotonic() - started))


def _mistake(feed: Feed, error: Exception) -> FeedFailed:
    """An exception out of a feed's own code, with the line of its file that raised it."""
    file = inspect.getfile(type(feed))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = SourceLocation(file, lines[-1]) if lines else SourceLocation(file)
    return FeedFailed(f"the feed raised {type(error).__name__}: {error}", place=place, hint="mend the feed's code")


def _cursor_folder(name: str, place: str | None) -> Path | None:
    """Where a feed's position is kept: one for each place that it writes to, none where nothing is kept."""
    if place is None:
        return None
    readable = re.sub(r"[^\w.-]+", "_", place)[:60]
    return STATE.value() / "feeds" / f"{name}-{readable}-{sha256(place.encode()).hexdigest()[:8]}"


def _command(name: str, kind: type[Any]) -> Any:
    """A command whose options are those of every feed and the fields of this one."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    hints = get_type_hints(kind)
    clash = fields.keys() & inspect.signature(run_feed).parameters.keys()
    if clash:
        raise InvalidOption(
            f"{name}: every feed has {', '.join(sorted(clash))} already", hint="name the field otherwise"
        )
    own = [_parameter(field, hints[field.name]) for field in fields.values()]
    common = [
        parameter.replace(kind=_KEYWORD)
        for parameter in inspect.signature(run_feed, eval_str=True).parameters.values()
        if parameter.name not in ("name", "make_feed")
    ]

    def command(**given: Any) -> None:
        chosen = {field: given.pop(field) for field in fields}
        run_feed(_short(name), lambda: kind(**_values(fields, chosen)), **given)

    command.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in (*own, *common)}
    command.__doc__ = inspect.getdoc(kind)
    single = typer.Typer(add_completion=False)
    single.command(name)(command)
    return typer.main.get_command(single)


def _parameter(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """A field as Typer's parameter; text when the field reads it itself, and None when it is not given."""
    about = field.metadata
    required = field.default is dataclasses.MISSING or field.default is ...
    shown = about.get("shown_default") or (None if field.default in (None, "") else str(field.default))
    made: dict[str, Any] = {"help": about.get("help"), "show_default": False if required else (shown or False)}
    if about.get("variable"):
        made |= {"envvar": about["variable"], "show_default": False}
    if hint is bool:
        option = typer.Option(f"--{_dashed(field.name)}", **made)
        return _keyword(field.name, Annotated[bool, option], field.default)
    kind = str if about.get("parse") else _without_none(hint)
    if about.get("argument"):
        default = inspect.Parameter.empty if required else None
        return _keyword(field.name, Annotated[kind if required else kind | None, typer.Argument(**made)], default)
    return _keyword(field.name, Annotated[kind | None, typer.Option(f"--{_dashed(field.name)}", **made)], None)


def _values(fields: dict[str, dataclasses.Field[Any]], given: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            parse = fields[name].metadata.get("parse")
            values[name] = parse(value) if parse else value
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in values]
    if missing:
        raise InvalidOption(f"{', '.join(f'--{_dashed(name)}' for name in missing)} is needed")
    return values


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, _KEYWORD, default=default, annotation=annotation)


def _without_none(hint: Any) -> Any:
    """The type without its None."""
    options = [one for one in getattr(hint, "__args__", (hint,)) if one is not type(None)]
    return options[0]


def _short(name: str) -> str:
    return name.removesuffix(".py").rpartition("/")[2]


def _dashed(name: str) -> str:
    return name.replace("_", "-")
