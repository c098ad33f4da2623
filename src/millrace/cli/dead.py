"""`millrace dead`: the records that pipelines could not use, with their reasons."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import AsJson, DataFolder, KafkaAddress, KafkaConfig, setting_option
from millrace.cli.output import out, reader_may_leave, say, show_json, show_table
from millrace.cli.targets import Target, the_cluster
from millrace.errors import FileUnusable, InvalidOption
from millrace.settings import STATE

if TYPE_CHECKING:
    from millrace.clients.dead import Found
    from millrace.clients.reasons import Count

app = typer.Typer(help="Dead letters: the records that pipelines could not use.", no_args_is_help=True)

Named = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A pipeline's name or file, or a topic (posts, posts.dead).", show_default=False
    ),
]
StateFolder = Annotated[str | None, setting_option(STATE, "DIR")]
_PREVIEW = 1000
_TOP = 3


@app.command("list")
def list_(
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    state: StateFolder = None,
    as_json: AsJson = False,
) -> None:
    """List where dead letters are, how many, and why."""
    from millrace.clients.dead import dead_folders, dead_topics, in_folder, in_topics
    from millrace.clients.reasons import Count

    cluster, missing = the_cluster(kafka, kafka_config, data)
    topics = dead_topics(cluster) if cluster else []
    counts = {topic: Count() for topic in topics}
    for one in in_topics(cluster, topics) if cluster else ():
        counts[one.home].add(one)
    for folder in dead_folders(STATE.value(state)):
        counts[str(folder)] = Count()
        for one in in_folder(folder):
            counts[str(folder)].add(one)
    if missing:
        say(f"only folders were looked at: {missing.message}")
    if as_json:
        show_json([_counted(home, count) for home, count in counts.items()])
    elif not any(count.letters for count in counts.values()):
        say("there are no dead letters")
    else:
        rows = [
            (home, sorted(count.pipelines), count.letters, _moment(count.newest), _top(count))
            for home, count in counts.items()
        ]
        show_table(("where", "pipelines", "letters", "newest", "reasons"), rows)


@app.command()
def show(
    target: Named,
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many, the newest.")] = 20,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Only records of this partition of the source.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Only the record that had this offset; needs --partition.")
    ] = None,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    state: StateFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a letter.")] = False,
) -> None:
    """Show dead letters: where each record was, why it could not be used, and what it was."""
    if offset is not None and partition is None:
        raise InvalidOption("an offset needs a partition", hint="offsets count within a partition: add --partition P")
    aim = Target.named(target, STATE.value(state), *the_cluster(kafka, kafka_config, data))
    wanted = (
        one
        for one in aim.letters()
        if partition in (None, one.letter.partition) and offset in (None, one.letter.offset)
    )
    newest = heapq.nlargest(most, wanted, key=lambda one: (one.buried, one.home, one.partition or 0, one.offset))
    with reader_may_leave():
        for one in reversed(newest):
            if as_json:
                sys.stdout.buffer.write(_line(one))
            else:
                out().print("\n".join(_shown(one)), markup=False, soft_wrap=True)
        sys.stdout.buffer.flush()
        say(f"{len(newest):,} of {aim.read:,} dead letters" if newest else "no dead letters")


@app.command()
def export(
    target: Named,
    to: Annotated[str, typer.Option("--out", metavar="FILE", help="Where to; - is standard output.")] = "-",
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    state: StateFolder = None,
) -> None:
    """Write dead letters as JSON lines, with their bytes in base64."""
    aim = Target.named(target, STATE.value(state), *the_cluster(kafka, kafka_config, data))
    lines = (_line(one) for one in aim.letters())
    with closing(lines):
        if to == "-":
            with reader_may_leave():
                sys.stdout.buffer.writelines(lines)
                sys.stdout.buffer.flush()
        else:
            _write(Path(to), lines)
    say(f"{aim.read:,} dead letters")


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """A file that is whole or not there."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        with draft.open("wb") as file:
            file.writelines(lines)
        draft.replace(path)
    except OSError as error:
        raise FileUnusable(f"cannot write to {path}", why=error.strerror or str(error)) from None
    finally:
        draft.unlink(missing_ok=True)


def _line(one: Found) -> bytes:
    from millrace.clients.letters import to_line

    home = {"topic": one.home, "partition": one.partition, "offset": one.offset}
    lies = {"file": one.home, "line": one.offset} if one.partition is None else home
    return to_line(one.letter, dead=lies, buried=one.buried)


def _shown(one: Found) -> list[str]:
    letter = one.letter
    lies = f"{one.home}:{one.offset}" if one.partition is None else f"{one.home}[{one.partition}]@{one.offset}"
    made = "" if letter.timestamp is None else f" of {_moment(letter.timestamp)}"
    return [
        f"{letter.place}{made}",
        f"  reason:   {_safe(letter.reason)}",
        f"  pipeline: {letter.pipeline}, source {letter.source}",
        f"  letter:   {lies} of {_moment(one.buried)}",
        *([] if letter.key is None else [f"  key:      {_preview(letter.key)}"]),
        *(f"  header:   {_safe(name)}: {_preview(content)}" for name, content in letter.headers),
        f"  value:    {_preview(letter.value)}",
    ]


def _preview(content: bytes | None) -> str:
    """Bytes as text when they are text, else as hex; the first of them when there are many."""
    from millrace.clients.letters import text

    if content is None:
        return "(null)"
    words = text(content)
    if words is None:
        first = content[: _PREVIEW // 10]
        return f"{first.hex(' ')}{' …' * (len(first) < len(content))} ({len(content):,} bytes, not UTF-8)"
    if len(words) > _PREVIEW:
        return f"{_safe(words[:_PREVIEW])}… ({len(content):,} bytes)"
    return _safe(words)


def _safe(words: str) -> str:
    """Text that cannot steer the terminal it is shown on."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in words)


def _moment(milliseconds: int | None) -> str | None:
    """A time, unless it is none that a calendar has."""
    if milliseconds is None:
        return None
    try:
        return (
            datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def _top(count: Count) -> str:
    shown = [f"{number:,} × {_safe(reason)[:80]}" for reason, number in count.kinds.most_common(_TOP)]
    more = len(count.kinds) - _TOP
    return "\n".join([*shown, f"and {more:,} more"] if more > 0 else shown)


def _counted(home: str, count: Count) -> dict[str, Any]:
    reasons = [{"reason": reason, "letters": number} for reason, number in count.kinds.most_common(100)]
    return {
        "where": home,
        "pipelines": sorted(count.pipelines),
        "letters": count.letters,
        "newest": count.newest,
        "reasons": reasons,
    }
