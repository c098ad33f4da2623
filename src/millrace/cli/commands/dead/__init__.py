"""`millrace dead`: the records that pipelines could not use, with their reasons."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.atomic_files import AtomicFile
from millrace.cli.commands.dead.redrive import redrive
from millrace.cli.commands.dead.selection import (
    DeadLetterSelection,
    Named,
    OfOffset,
    OfPartition,
    StateFolder,
    letter_line,
    letter_text,
    letter_time,
    safe_text,
    the_cluster,
)
from millrace.cli.options import AsJson, DataFolder, KafkaAddress, KafkaConfig
from millrace.cli.output import out, reader_may_leave, say, show_json, show_table
from millrace.errors import FileUnusable, InvalidOption
from millrace.settings import STATE
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.dead_letters.redrive_filter import DeadLetterSummary

app = typer.Typer(help="Dead letters: the records that pipelines could not use.", no_args_is_help=True)
app.command()(redrive)

All = Annotated[bool, typer.Option("--all", help="Also those that were sent again.")]
_TOP = 3


@app.command("list")
def list_(
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    state: StateFolder = None,
    every: All = False,
    as_json: AsJson = False,
) -> None:
    """List where dead letters are, how many are open, and why."""
    from millrace.dead_letters.redrive_filter import DeadLetterSummary
    from millrace.dead_letters.store import (
        dead_folders,
        dead_topics,
        letters_in_folder,
        letters_in_topics,
        redrive_markers_in_topics,
    )

    cluster, missing = the_cluster(kafka, kafka_config, data)
    topics = dead_topics(cluster) if cluster else []
    counts = {topic: DeadLetterSummary() for topic in topics}
    for one in letters_in_topics(cluster, topics, marks=redrive_markers_in_topics(cluster, topics)) if cluster else ():
        counts[one.location].add(one)
    for folder in dead_folders(STATE.value(state)):
        counts[str(folder)] = DeadLetterSummary()
        for one in letters_in_folder(folder):
            counts[str(folder)].add(one)
    if not every:
        counts = {home: count for home, count in counts.items() if count.letters or not count.redriven}
    if missing:
        say(f"only folders were looked at: {missing.message}")
    if as_json:
        show_json([_counted(home, count) for home, count in counts.items()])
    elif not any(count.letters or count.redriven for count in counts.values()):
        say("there are no dead letters")
    else:
        rows = [
            (home, sorted(count.pipelines), count.letters, count.redriven, letter_time(count.newest), _top(count))
            for home, count in counts.items()
        ]
        show_table(("where", "pipelines", "open", "redriven", "newest", "reasons"), rows)


@app.command()
def show(
    target: Named,
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many, the newest.")] = 20,
    partition: OfPartition = None,
    offset: OfOffset = None,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    state: StateFolder = None,
    every: All = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a letter.")] = False,
) -> None:
    """Show dead letters: where each record was, why it could not be used, and what it was."""
    if offset is not None and partition is None:
        raise InvalidOption("an offset needs a partition", hint="offsets count within a partition: add --partition P")
    aim = DeadLetterSelection.named(target, STATE.value(state), *the_cluster(kafka, kafka_config, data))
    wanted = (
        one
        for one in aim.letters(redriven=every)
        if partition in (None, one.letter.partition) and offset in (None, one.letter.offset)
    )
    newest = heapq.nlargest(most, wanted, key=lambda one: (one.stored_at, one.location, one.partition or 0, one.offset))
    with reader_may_leave():
        for one in reversed(newest):
            if as_json:
                sys.stdout.buffer.write(letter_line(one))
            else:
                out().print("\n".join(letter_text(one)), markup=False, soft_wrap=True)
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
    every: All = False,
) -> None:
    """Write dead letters as JSON lines, with their bytes in base64."""
    aim = DeadLetterSelection.named(target, STATE.value(state), *the_cluster(kafka, kafka_config, data))
    lines = (letter_line(one) for one in aim.letters(redriven=every))
    with closing(lines):
        if to == "-":
            with reader_may_leave():
                sys.stdout.buffer.writelines(lines)
                sys.stdout.buffer.flush()
        else:
            _write(Path(to), lines)
    say(format_count(aim.read, "dead letter"))


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """A file that is whole or not there."""
    try:
        with AtomicFile(path) as draft:
            draft.file.writelines(lines)
    except OSError as error:
        raise FileUnusable(f"cannot write to {path}", why=error.strerror or str(error)) from None


def _top(count: DeadLetterSummary) -> str:
    told = [f"{number:,} × {safe_text(reason)[:80]}" for reason, number in count.kinds.most_common(_TOP)]
    more = len(count.kinds) - _TOP
    return "\n".join([*told, f"and {more:,} more"] if more > 0 else told)


def _counted(home: str, count: DeadLetterSummary) -> dict[str, Any]:
    reasons = [{"reason": reason, "letters": number} for reason, number in count.kinds.most_common(100)]
    return {
        "where": home,
        "pipelines": sorted(count.pipelines),
        "letters": count.letters,
        "redriven": count.redriven,
        "newest": count.newest,
        "reasons": reasons,
    }
