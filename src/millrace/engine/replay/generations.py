"""The generations of a pipeline's outputs.

The first generation has the names in the file. A replay writes another: `popular` becomes `popular.g2`, and the
pipeline that writes it `trending@2`, a name that no file can give. So everything that is stored by a pipeline's name
(transactions, the run lease, offsets, the ledgers of dead letters) is separate, and its state folder is `…/trending@2`.

- `Generations` is what is stored about them: which exist, and which one is current.
- `load` and `change` read and write it, in a file beside the state folder of the first generation.
- `pipeline_of` and `choose` return the pipeline that writes a generation.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from millrace.atomic_files import write_whole
from millrace.connectors.base.offset_range import Offsets, ReplayRange
from millrace.connectors.base.registry import in_generation, make_sink
from millrace.errors import InvalidReplay, StateMismatch
from millrace.object_stores import StorePath
from millrace.pipeline.model import PipelineDef, SinkDef

FIRST = 1
_VERSION = 1


@dataclass(frozen=True)
class Output:
    """An output of a generation: `name` is that in the file, `own` that of the generation."""

    kind: str
    """The connector: kafka, files, cassandra."""
    name: str
    own: str


@dataclass(frozen=True)
class Generation:
    """A generation that a replay writes or has written; the fields are stored as JSON."""

    number: int
    asked: tuple[str, str]
    """The start and the end as the user wrote them."""
    code: str
    """A digest of the pipeline's code: a generation is written by one code only."""
    begin: Offsets
    end: Offsets
    outputs: tuple[Output, ...]
    left_out: tuple[str, ...] = ()
    """Connectors whose sinks are not part of the replay."""
    begun: float = 0.0
    done: float | None = None
    """When it was finished."""

    @classmethod
    def of(cls, payload: dict[str, Any]) -> Generation:
        outputs = tuple(Output(**output) for output in payload["outputs"])
        return cls(**payload | {name: tuple(payload[name]) for name in ("asked", "left_out")} | {"outputs": outputs})


@dataclass(frozen=True)
class Generations:
    """All generations of a pipeline; the fields are stored as JSON."""

    current: int = FIRST
    """The one that `run` continues and that the aliases name."""
    before: int | None = None
    """The previous current one, for a rollback."""
    switching: int | None = None
    """The target of a switch that is not finished."""
    last: int = FIRST
    """The highest number that was ever used."""
    made: tuple[Generation, ...] = ()
    dropping: tuple[int, ...] = ()
    """Those that are being deleted, and may exist in part."""
    first_gone: bool = False

    def get(self, number: int) -> Generation | None:
        """Return a generation of a replay."""
        return next((generation for generation in self.made if generation.number == number), None)

    def require(self, number: int, *, whole: bool = True) -> Generation | None:
        """Return a generation that exists, and is complete unless `whole` is False; None for the first one."""
        generation = self.get(number)
        if generation is None and (number != FIRST or self.first_gone):
            first = [] if self.first_gone else [FIRST]
            numbers = ", ".join(map(str, [*first, *(generation.number for generation in self.made)]))
            hint = f"there are {numbers}" if self.made else "millrace replay FILE --from earliest creates one"
            raise InvalidReplay(f"there is no generation {number}", hint=hint)
        if whole and number in self.dropping:
            hint = f"millrace replay FILE --drop {number} deletes the rest"
            raise InvalidReplay(f"generation {number} is being deleted, and may exist in part", hint=hint)
        return generation

    def unfinished(self) -> Generation | None:
        """Return the generation whose replay was stopped and can resume; None if a later one was finished."""
        finished = (generation.number for generation in self.made if generation.done is not None)
        newest = max(self.current, *finished, FIRST)
        unfinished = (generation for generation in self.made if generation.done is None)
        kept = (generation for generation in unfinished if generation.number not in self.dropping)
        later = (generation for generation in kept if generation.number > newest)
        return max(later, key=lambda generation: generation.number, default=None)

    def with_generation(self, generation: Generation) -> Generations:
        """Return these with a generation that is new or has changed."""
        others = (other for other in self.made if other.number != generation.number)
        made = tuple(sorted((*others, generation), key=lambda other: other.number))
        return replace(self, last=max(self.last, generation.number), made=made)

    def without(self, number: int) -> Generations:
        """Return these without a generation; its number is not used again."""
        return replace(
            self,
            before=None if self.before == number else self.before,
            made=tuple(generation for generation in self.made if generation.number != number),
            dropping=tuple(other for other in self.dropping if other != number),
            first_gone=self.first_gone or number == FIRST,
        )


def load(base: Path) -> Generations:
    """Return the generations of a pipeline by the state folder of its first one."""
    if isinstance(base, StorePath):  # replays need a local folder
        return Generations()
    path = _path(base)
    try:
        payload = json.loads(path.read_text("utf-8"))
        if payload.pop("version") != _VERSION:
            raise ValueError("it was written by another version of Millrace")
        made, dropping = map(Generation.of, payload["made"]), payload.get("dropping", ())
        return Generations(**{**payload, "made": tuple(made), "dropping": tuple(dropping)})
    except FileNotFoundError:
        return Generations()
    except (OSError, ValueError, KeyError, TypeError) as error:
        why, hint = f"{type(error).__name__}: {error}", "it says which generation is current"
        raise StateMismatch(f"{path} cannot be read", why=why, hint=hint) from None


def change(base: Path, update: Callable[[Generations], Generations]) -> Generations:
    """Change what is stored, under a lock."""
    path = _path(base)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = update(load(base))
        write_whole(path, json.dumps({"version": _VERSION, **asdict(changed)}, indent=1))
    return changed


def listed(base: Path) -> list[dict[str, Any]]:
    """Return all generations as JSON objects; empty if there was never a replay."""
    generations = load(base)
    if generations.last == FIRST:
        return []
    names = sorted({output.name for generation in generations.made for output in generation.outputs})
    first = {"number": FIRST, "standing": "as the file names it", "outputs": names, "begin": {}, "end": {}}
    replayed = [
        {
            "number": generation.number,
            "standing": f"{_standing(generations, generation)}, from {' to '.join(generation.asked)}",
            "outputs": [output.own for output in generation.outputs],
            "begin": generation.begin,
            "end": generation.end,
        }
        for generation in generations.made
    ]
    rows = replayed if generations.first_gone else [first, *replayed]
    return [{**row, "current": row["number"] == generations.current} for row in rows]


def _standing(generations: Generations, generation: Generation) -> str:
    if generation.number in generations.dropping:
        return "half deleted"
    return "replayed" if generation.done else "not finished"


def _path(base: Path) -> Path:
    return base.absolute().with_name(f"{base.absolute().name}.generations.json")


def state_of(base: Path, number: int) -> Path:
    """Return the state folder of a generation."""
    return base if number == FIRST else base.absolute().with_name(f"{base.absolute().name}@{number}")


def name_of(pipeline: str, number: int) -> str:
    """Return the name of the pipeline that writes a generation."""
    return pipeline if number == FIRST else f"{pipeline}@{number}"


def mark_of(number: int) -> str:
    """Return the suffix of a generation for the topics of dead letters."""
    return f".g{number}"


def pipeline_of(pipeline: PipelineDef, number: int) -> PipelineDef:
    """Return the pipeline that writes a generation; sinks that cannot have generations do not change."""
    if number == FIRST:
        return pipeline
    moved = ((sink, in_generation(sink.connection, number)) for sink in pipeline.sinks)
    sinks = tuple(replace(sink, connection=connection or sink.connection) for sink, connection in moved)
    return replace(pipeline, name=name_of(pipeline.name, number), sinks=sinks)


@dataclass(frozen=True)
class ChosenGeneration:
    """A generation that a run continues."""

    number: int
    pipeline: PipelineDef
    state: Path
    base: Path
    """The state folder of the first generation."""
    span: ReplayRange | None = None
    """Where queries without a checkpoint start: at the end of the replay."""
    without: tuple[SinkDef, ...] = ()
    """Sinks that it does not write to: they cannot have generations, and get their rows from the current one."""


def choose(pipeline: PipelineDef, base: Path, number: int | None = None) -> ChosenGeneration:
    """Return the generation of a number, or the current one; raise InvalidReplay if its replay is not finished."""
    generations = load(base)
    number = generations.current if number is None else number
    span = None
    if generation := generations.require(number):
        require_finished(generation)
        span = ReplayRange(generation.end)
    without = () if number == generations.current else tuple(sink for sink in pipeline.sinks if is_single(sink))
    written = replace(pipeline, sinks=tuple(sink for sink in pipeline.sinks if sink not in without))
    return ChosenGeneration(number, pipeline_of(written, number), state_of(base, number), base, span, without)


def require_finished(generation: Generation) -> None:
    """Raise InvalidReplay if the replay of a generation is not finished."""
    if generation.done is None:
        hint = "millrace replay FILE --resume resumes it"
        raise InvalidReplay(f"generation {generation.number} is not finished", hint=hint)


def is_single(sink: SinkDef) -> bool:
    """Return whether a sink cannot have generations, so that two of them would write everything twice."""
    writer, _ = make_sink(sink.connection)
    return writer is not None and not writer.transient and in_generation(sink.connection, 2) is None
