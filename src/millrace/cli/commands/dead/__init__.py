"""`millrace dead`: the records that pipelines could not use, with their reasons."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from millrace.atomic_files import AtomicFile
from millrace.cli.app import OUTPUT_PANEL, RECORDS_PANEL, App
from millrace.cli.commands.dead.redrive import redrive
from millrace.cli.commands.dead.selection import (
    DeadLetterOptions,
    PositionOptions,
    Target,
    letter_line,
    letter_text,
    letter_time,
    safe_text,
)
from millrace.cli.options import AsJson
from millrace.cli.output import closed_output_allowed, print_line, print_result, show_json, show_table
from millrace.errors import FileUnusable
from millrace.settings import STATE
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.dead_letters.redrive_filter import DeadLetterSummary

app = App(help="Dead letters: the records that pipelines could not use.")
app.command()(redrive)

All = Annotated[bool, RECORDS_PANEL.flag("Also letters that were sent again.", names="--all")]
_REASONS_PRINTED = 3
_REASON_CHARS_PRINTED = 80


@app.command("list")
def list_(*, every: All = False, as_json: AsJson = False, where: DeadLetterOptions) -> None:
    """List where dead letters are, how many are open, and why."""
    from millrace.dead_letters import store
    from millrace.dead_letters.redrive_filter import DeadLetterSummary

    cluster, missing = where.cluster_or_reason()
    counts: dict[str, DeadLetterSummary] = {}
    if cluster:
        topics = store.dead_topics(cluster)
        counts = {topic: DeadLetterSummary() for topic in topics}
        for letter in store.letters_in_topics(
            cluster, topics, markers=store.redrive_markers_in_topics(cluster, topics)
        ):
            counts[letter.location].add(letter)
    for folder in store.dead_folders(STATE.value(where.state)):
        counts[str(folder)] = DeadLetterSummary()
        for letter in store.letters_in_folder(folder):
            counts[str(folder)].add(letter)
    if not every:
        counts = {location: count for location, count in counts.items() if count.letters or not count.redriven}
    if missing:
        print_line(f"only folders were searched: {missing.message}")
    if as_json:
        show_json([_as_json(location, count) for location, count in counts.items()])
    elif not any(count.letters or count.redriven for count in counts.values()):
        print_line("there are no dead letters")
    else:
        rows = [
            (location, sorted(count.pipelines), count.letters, count.redriven, letter_time(count.newest), _top(count))
            for location, count in counts.items()
        ]
        show_table(("where", "pipelines", "open", "redriven", "newest", "reasons"), rows)


@app.command()
def show(
    target: Target,
    *,
    most: int = RECORDS_PANEL.option("Maximum number of letters, the newest.", "N", names="--max", min=1, default=20),
    position: PositionOptions,
    every: All = False,
    as_json: bool = OUTPUT_PANEL.flag("Print one JSON object for each letter.", names="--json"),
    where: DeadLetterOptions,
) -> None:
    """Show dead letters: where each record was, why it could not be used, and its content."""
    position.require_partition()
    selection = where.select(target)
    letters = (letter for letter in selection.letters(redriven=every) if position.fits(letter))
    newest = heapq.nlargest(
        most, letters, key=lambda letter: (letter.stored_at, letter.location, letter.partition or 0, letter.offset)
    )
    with closed_output_allowed():
        for letter in reversed(newest):
            if as_json:
                sys.stdout.buffer.write(letter_line(letter))
            else:
                print_result("\n".join(letter_text(letter)))
        sys.stdout.buffer.flush()
        print_line(f"{len(newest):,} of {selection.read:,} dead letters" if newest else "no dead letters")


@app.command()
def export(
    target: Target,
    *,
    to: str = OUTPUT_PANEL.option("The file; - is standard output.", "FILE", names="--out", default="-"),
    every: All = False,
    where: DeadLetterOptions,
) -> None:
    """Write dead letters as JSON lines, with their bytes in base64."""
    selection = where.select(target)
    lines = (letter_line(letter) for letter in selection.letters(redriven=every))
    with closing(lines):
        if to == "-":
            with closed_output_allowed():
                sys.stdout.buffer.writelines(lines)
                sys.stdout.buffer.flush()
        else:
            _write(Path(to), lines)
    print_line(format_count(selection.read, "dead letter"))


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """Write a complete file or none."""
    try:
        with AtomicFile(path) as draft:
            draft.file.writelines(lines)
    except OSError as error:
        raise FileUnusable(f"cannot write to {path}", why=error.strerror or str(error)) from None


def _top(count: DeadLetterSummary) -> str:
    lines = [
        f"{number:,} × {safe_text(reason)[:_REASON_CHARS_PRINTED]}"
        for reason, number in count.kinds.most_common(_REASONS_PRINTED)
    ]
    more = len(count.kinds) - _REASONS_PRINTED
    return "\n".join([*lines, f"and {more:,} more"] if more > 0 else lines)


def _as_json(location: str, count: DeadLetterSummary) -> dict[str, Any]:
    reasons = [{"reason": reason, "letters": number} for reason, number in count.kinds.most_common(100)]
    return {
        "where": location,
        "pipelines": sorted(count.pipelines),
        "letters": count.letters,
        "redriven": count.redriven,
        "newest": count.newest,
        "reasons": reasons,
    }
