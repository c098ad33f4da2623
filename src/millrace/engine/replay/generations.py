"""The generations of a pipeline's outputs: which there are, which one counts, and the pipeline that writes each.

The first one is what the file names. A replay makes another: `popular` becomes `popular.g2`, and the pipeline that
writes it `trending@2`, a name that no file can give. Everything that is kept by a pipeline's name (transactions, the
lease of a run, positions, the ledgers of dead letters) is so kept apart, and its state folder is `…/trending@2`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from millrace.atomic_files import write_whole
from millrace.connectors.base.offset_range import Offsets, ReplayRange
from millrace.connectors.base.registry import in_generation, make_writer
from millrace.errors import InvalidReplay, StateMismatch
from millrace.object_stores import StorePath
from millrace.pipeline.model import PipelineDef, SinkDef

FIRST = 1
_VERSION = 1


@dataclass(frozen=True)
class Output:
    """What a generation has instead of what the file names."""

    kind: str
    """The connector: kafka, files, cassandra."""
    name: str
    own: str


@dataclass(frozen=True)
class Generation:
    """What is known of one that a replay has made, or makes."""

    number: int
    asked: tuple[str, str]
    """From where to where, as it was written."""
    code: str
    """Tells the pipeline's code from any other: one generation has one."""
    begin: Offsets
    end: Offsets
    outputs: tuple[Output, ...]
    left_out: tuple[str, ...] = ()
    """Connectors whose sinks the replay does without."""
    begun: float = 0.0
    done: float | None = None
    """When its end was reached."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Generation:
        """From JSON."""
        outputs = tuple(Output(**one) for one in told["outputs"])
        start, end = told["asked"]
        return cls(**{**told, "asked": (start, end), "outputs": outputs, "left_out": tuple(told["left_out"])})


@dataclass(frozen=True)
class Generations:
    """All of a pipeline."""

    current: int = FIRST
    """The one that `run` goes on with and that the aliases lead to."""
    before: int | None = None
    """The one that was current before, for a rollback."""
    switching: int | None = None
    """The one to which a switch was begun that has not come to its end."""
    last: int = FIRST
    """The highest number that was ever given."""
    made: tuple[Generation, ...] = ()
    dropping: tuple[int, ...] = ()
    """Those that are being deleted, and of which something may be left."""
    first_gone: bool = False
    """Whether the first was deleted."""

    def get(self, number: int) -> Generation | None:
        """One that a replay made."""
        return next((one for one in self.made if one.number == number), None)

    def require(self, number: int, *, whole: bool = True) -> Generation | None:
        """One that there is, and is not half deleted; None for the first."""
        found = self.get(number)
        if found is None and (number != FIRST or self.first_gone):
            numbers = ", ".join(map(str, [*([] if self.first_gone else [FIRST]), *(one.number for one in self.made)]))
            hint = f"there are {numbers}" if self.made else "millrace replay FILE --from earliest makes one"
            raise InvalidReplay(f"there is no generation {number}", hint=hint)
        if whole and number in self.dropping:
            raise InvalidReplay(
                f"generation {number} is being deleted, and something of it may be gone",
                hint=f"millrace replay FILE --drop {number} ends that",
            )
        return found

    def waiting(self) -> Generation | None:
        """The one whose replay was stopped and may go on; none that a later one has taken the place of."""
        finished = (one.number for one in self.made if one.done is not None)
        since = max(self.current, *finished, FIRST)
        open_ones = (one for one in self.made if one.done is None and one.number not in self.dropping)
        return max((one for one in open_ones if one.number > since), key=lambda one: one.number, default=None)

    def with_one(self, one: Generation) -> Generations:
        """The same with one that is new or has changed."""
        others = tuple(other for other in self.made if other.number != one.number)
        made = tuple(sorted((*others, one), key=lambda each: each.number))
        return replace(self, last=max(self.last, one.number), made=made)

    def without(self, number: int) -> Generations:
        """The same without one; its number is not given again."""
        return replace(
            self,
            before=None if self.before == number else self.before,
            made=tuple(one for one in self.made if one.number != number),
            dropping=tuple(one for one in self.dropping if one != number),
            first_gone=self.first_gone or number == FIRST,
        )


def load(base: Path) -> Generations:
    """The generations of the pipeline whose first one has this state folder."""
    if isinstance(base, StorePath):  # replays are of folders
        return Generations()
    path = _path(base)
    try:
        told = json.loads(path.read_text("utf-8"))
        if told.pop("version") != _VERSION:
            raise ValueError("it was written by another version of Millrace")
        made, dropping = map(Generation.of, told["made"]), told.get("dropping", ())
        return Generations(**{**told, "made": tuple(made), "dropping": tuple(dropping)})
    except FileNotFoundError:
        return Generations()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateMismatch(
            f"{path} cannot be read", why=f"{type(error).__name__}: {error}", hint="it says which generation counts"
        ) from None


def change(base: Path, changed: Callable[[Generations], Generations]) -> Generations:
    """Change what is noted, while nobody else does."""
    path = _path(base)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        after = changed(load(base))
        write_whole(path, json.dumps({"version": _VERSION, **asdict(after)}, indent=1))
    finally:
        os.close(lock)
    return after


def listed(base: Path) -> list[dict[str, Any]]:
    """All of them as plain data; nothing where no replay has ever made one."""
    known = load(base)
    if known.last == FIRST:
        return []
    names = sorted({output.name for one in known.made for output in one.outputs})
    first = {"number": FIRST, "standing": "as the file names it", "outputs": names, "begin": {}, "end": {}}
    made = [
        {
            "number": one.number,
            "standing": f"{_standing(known, one)}, from {one.asked[0]} to {one.asked[1]}",
            "outputs": [output.own for output in one.outputs],
            "begin": one.begin,
            "end": one.end,
        }
        for one in known.made
    ]
    every = made if known.first_gone else [first, *made]
    return [{**one, "current": one["number"] == known.current} for one in every]


def _standing(known: Generations, one: Generation) -> str:
    if one.number in known.dropping:
        return "half deleted"
    return "replayed" if one.done else "not finished"


def _path(base: Path) -> Path:
    return base.absolute().with_name(f"{base.absolute().name}.generations.json")


def state_of(base: Path, number: int) -> Path:
    """The state folder of a generation."""
    return base if number == FIRST else base.absolute().with_name(f"{base.absolute().name}@{number}")


def name_of(pipeline: str, number: int) -> str:
    """The name of the pipeline that writes a generation."""
    return pipeline if number == FIRST else f"{pipeline}@{number}"


def mark_of(number: int) -> str:
    """Return what a replay adds to the name of a topic, before the suffix of its dead letters."""
    return f".g{number}"


def pipeline_of(pipeline: PipelineDef, number: int) -> PipelineDef:
    """The pipeline that writes a generation; sinks that can have only one stay as they are."""
    if number == FIRST:
        return pipeline
    sinks = (
        replace(sink, connection=in_generation(sink.connection, number) or sink.connection) for sink in pipeline.sinks
    )
    return replace(pipeline, name=name_of(pipeline.name, number), sinks=tuple(sinks))


@dataclass(frozen=True)
class ChosenGeneration:
    """A generation that a run goes on with."""

    number: int
    pipeline: PipelineDef
    state: Path
    base: Path
    """The state folder of the first one, beside which all are noted."""
    span: ReplayRange | None = None
    """Where its queries begin that have no checkpoint: where the replay ended."""
    without: tuple[SinkDef, ...] = ()
    """Sinks that it does not write to: they have one generation only, and get their rows from the current one."""


def choose(pipeline: PipelineDef, base: Path, number: int | None = None) -> ChosenGeneration:
    """The generation of a number, or the current one; raises when its replay is not finished."""
    known = load(base)
    wanted = known.current if number is None else number
    found = known.require(wanted)
    if found is not None and found.done is None:
        raise InvalidReplay(
            f"generation {wanted} is not finished", hint="millrace replay FILE --resume goes on with it"
        )
    span = None if found is None else ReplayRange(found.end)
    without = () if wanted == known.current else tuple(sink for sink in pipeline.sinks if is_single(sink))
    written = replace(pipeline, sinks=tuple(sink for sink in pipeline.sinks if sink not in without))
    return ChosenGeneration(wanted, pipeline_of(written, wanted), state_of(base, wanted), base, span, without)


def is_single(sink: SinkDef) -> bool:
    """Whether two generations would give a sink everything twice."""
    writer, _ = make_writer(sink.connection)
    return writer is not None and not writer.transient and in_generation(sink.connection, 2) is None
