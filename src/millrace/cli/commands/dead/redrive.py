"""`millrace dead redrive`: dead letters through their pipeline again, mended or not, each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, Yes, confirm
from millrace.cli.output import progress_line, say, show_json
from millrace.cli.preview import Preview, show_preview, tell_failures
from millrace.cli.targets import Named, OfOffset, OfPartition, StateFolder, Target, the_cluster
from millrace.clients.outcome import Outcome
from millrace.errors import InvalidOption
from millrace.settings import STATE
from millrace.units import so_many

if TYPE_CHECKING:
    from millrace.clients.fixes import Fix
    from millrace.clients.redrive import Redrive
    from millrace.clients.selection import Selection


def redrive(
    target: Named,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Only letters whose reason has this in it.")
    ] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="NAME", help="Only letters of this source.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only letters that were buried since then.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only letters that were buried before.")
    ] = None,
    partition: OfPartition = None,
    offset: OfOffset = None,
    letter: Annotated[
        str | None,
        typer.Option("--letter", metavar="PLACE", help="Only this one, as dead show tells its place: posts.dead[0]@7."),
    ] = None,
    fix: Annotated[
        str | None, typer.Option("--fix", metavar="FILE.py:FUNCTION", help="A function that mends each letter.")
    ] = None,
    fix_sql: Annotated[
        str | None, typer.Option("--fix-sql", metavar="EXPRESSION", help="A SQL expression for the new value.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Into this topic, not into that of the record.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, mended as it would be; change nothing.")
    ] = False,
    yes: Yes = False,
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as JSON.")] = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    state: StateFolder = None,
) -> None:
    """Send dead letters through their pipeline again, and mark them: each goes once."""
    from millrace.clients.redrive import Redrive
    from millrace.clients.selection import Selection

    if offset is not None and partition is None:
        raise InvalidOption("an offset needs a partition", hint="offsets count within a partition: add --partition P")
    mend = _fix(fix, fix_sql)
    aim = Target.named(target, STATE.value(state), *the_cluster(kafka, kafka_config, data))
    selection = Selection(
        pipeline=aim.pipeline,
        source=source,
        containing=reason,
        since=max(filter(None, (_milliseconds(since), aim.since)), default=None),
        until=_milliseconds(until),
        partition=partition,
        offset=offset,
        letter=letter,
        replayed=aim.pipeline is None or letter is not None,
    )
    wanted = Redrive(selection, mend, to)
    found = Preview.of(aim, selection, mend, whole=dry_run)
    if dry_run:
        if letter is not None and not found.letters:
            _tell_none(aim, selection)
        show_preview(found, wanted, aim.cluster, as_json=as_json)
        raise typer.Exit(1 if found.outcome.failed else 0)
    if not found.letters:
        _tell_none(aim, selection)
    elif not yes:
        show_preview(found, wanted, aim.cluster)
    if not found.letters or confirm(f"send {so_many(found.letters, 'letter')} again?", yes):
        _finish(_run(aim, wanted, found), as_json=as_json)


def _tell_none(aim: Target, selection: Selection) -> None:
    """Say why there is nothing to do; raises when a letter was named that is none."""
    if selection.letter is not None:
        if not any(selection.fits(one) for one in aim.letters(redriven=True)):
            hint = "write it as millrace dead show tells it, such as posts.dead[0]@7; --all shows those sent again too"
            raise InvalidOption(f"--letter: there is no dead letter {selection.letter!r}", hint=hint)
        say(f"{selection.letter} was sent again before")
    elif aim.read and "@" in aim.name:
        say(f"{aim.read:,} open letters of a replay: send those again by their topic, as millrace dead list has it")
    else:
        say("no dead letters to send again")


def _fix(function: str | None, expression: str | None) -> Fix:
    from millrace.clients.fixes import NO_FIX, python_fix, sql_fix

    if function is not None and expression is not None:
        raise InvalidOption("--fix and --fix-sql are two fixes", hint="give one of them")
    if function is not None:
        return python_fix(function)
    return NO_FIX if expression is None else sql_fix(expression)


def _milliseconds(text: str | None) -> int | None:
    from millrace.units import parse_time

    return None if text is None else round(parse_time(text).timestamp() * 1000)


def _run(aim: Target, wanted: Redrive, found: Preview) -> Outcome:
    from millrace.clients.redrive import redrive as of_topic
    from millrace.clients.refile import refile

    whole = Outcome()
    with progress_line() as renew:

        def tell(so_far: Outcome) -> None:
            renew(f"{whole.sent + so_far.sent:,} of {found.letters:,} letters sent again")

        for topic in found.topics:
            if aim.cluster:
                whole.add(of_topic(aim.cluster, topic, wanted, tell))
        for folder in {**found.folders, **dict.fromkeys([] if wanted.to else _interrupted(aim.folders))}:
            whole.add(refile(folder, wanted, tell))
    return whole


def _interrupted(folders: Iterable[Path]) -> list[Path]:
    """Folders in which a redrive was killed that has files to be named, whichever letters are asked for now."""
    from millrace.clients.journal import Journal

    return [one for one in folders if not all(entry.is_done() for entry in Journal(one).entries())]


def _finish(whole: Outcome, *, as_json: bool) -> None:
    tell_failures(whole)
    if as_json:
        show_json(asdict(whole))
    else:
        say(_summary(whole))
    if whole.failed:
        raise typer.Exit(1)


def _summary(whole: Outcome) -> str:
    parts = [f"{whole.sent:,} sent again"]
    parts += [f"{whole.already:,} only marked: their records had been sent"] if whole.already else []
    parts += [f"{whole.left:,} left by the fix"] if whole.left else []
    parts += [f"{whole.failed:,} failed and stay"] if whole.failed else []
    return ", ".join(parts)
