"""The contracts of sources and sinks on Spark.

- `Source`, `MessageSource` and `Sink`: what a connector implements. pyspark is imported inside methods only, so that
  `check` needs no JVM.
- `RunContext` and `RunLock`: what a run shares with its connectors.
- `SOURCES` and `SINKS`: a connector is one file in `millrace.connectors`, an entry point in the group of that name,
  or a user's file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.query_checkpoint import last_planned_batch
from millrace.errors import InvalidDefinition, NoCassandra
from millrace.errors.transport import errors_in_transport
from millrace.object_stores import StorePath
from millrace.pipeline.connector_facts import OptionMistake, RecordForm
from millrace.pipeline.model import MODES
from millrace.plugins import PluginRegistry, option
from millrace.units import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from millrace.connectors.base.offset_range import ReplayRange
    from millrace.dead_letters.writer import DeadLetterTarget
    from millrace.formats.base import Format
    from millrace.pipeline.analysis.pipeline import SourceWatermark
    from millrace.pipeline.schema import Schema


def no_cassandra() -> Cassandra:
    """Raise, for a run that names no Cassandra."""
    hint = "start one with millrace cassandra up --detach, or name one with --cassandra"
    raise NoCassandra("there is no Cassandra to use", hint=hint)


class RunLock(Protocol):
    """What keeps a run the only one: nobody else writes to its state folder, nor under its pipeline's name."""

    def check(self) -> None:
        """Raise if another run may have taken over; ask others only where the last answer is too old."""

    def check_cached(self) -> None:
        """Raise if another run is known to have taken over; ask nobody."""

    def check_start(self) -> None:
        """Raise if another run has taken over; ask now, before the start of a query that must be the only writer."""


class NoLock:
    """The lock of a run that nobody can take over."""

    def check(self) -> None:
        """Raise nothing."""

    check_start = check_cached = check


@dataclass(frozen=True)
class RunContext:
    """What all parts of a run share, from the command line to its connectors.

    The first fields hold for the whole run. Those from `query` on describe one source or sink of one query: its context
    is a `replace` of the run's.
    """

    state: Path
    cluster: Callable[[], Cluster]
    """Gives the Kafka cluster, for those who need one."""
    pipeline: str = ""
    session: SparkSession | None = None
    """None until Spark is open."""
    state_id: str = ""
    """Identifies the state folder: another one at the same path has another id."""
    lock: RunLock = field(default_factory=NoLock)
    create_topics: bool = True
    print_line: Callable[[str], None] = field(default=print)
    """Writes lines of results to standard output."""
    notify: Callable[[str], None] = field(default=lambda _: None)
    """Shows the user what the run is doing."""
    cassandra: Callable[[], Cassandra] = field(default=no_cassandra)
    """Gives the Cassandra, for those who need one."""
    offset_range: ReplayRange | None = None
    """The part of Kafka's topics that is read, where the pipeline's file does not define it: in a replay, and after."""
    topic_suffix: str = ""
    """What a replay adds to the names of dead letter topics."""
    accept: Collection[str] = ()
    """Queries that resume although their state was computed by another query."""

    query: str = ""
    """The query that reads or writes."""
    name: str = ""
    """The source's name, or the name of the table that is written."""
    static: bool = False
    """Whether a source is read whole instead of followed."""
    mode: str = "append"
    """How a table's rows are written."""
    batches: bool = True
    """False in real-time mode and with the continuous trigger, which have no batches."""
    trigger_interval_s: float = 0.0
    """Seconds from one batch to the next, where the trigger defines them."""
    checkpoint: Path | None = None
    watermark: SourceWatermark | None = None
    """The watermark that the query has on the rows of the source; None if it has none."""
    next_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How far the query has read its topics, by partition; empty before its first batch."""
    unfinished_batch: int | None = None
    """The batch that the query began and never finished, if there is one: it comes again."""
    duplicate_index: int = 0
    """How many sinks of the query before this one write to the same place."""
    task_inputs: tuple[str, ...] = ()
    """What each task of a batch reads, where the written frame does not know it any more."""
    writer_in_plan: bool = False
    """Whether what writes a batch is part of its frame: then it is planned with the query, not for each batch."""

    @property
    def spark(self) -> SparkSession:
        """The session; only what runs before Spark is open has none."""
        if self.session is None:
            raise RuntimeError("the Spark session is not open yet")
        return self.session

    @property
    def checks_ownership_per_batch(self) -> bool:
        """Whether another run may take over the state folder: then each batch passes through us, and is checked."""
        return isinstance(self.state, StorePath)

    @property
    def newest_batch(self) -> int:
        """The newest batch that the query has planned, as its checkpoint says; -1 before the first."""
        return last_planned_batch(self.checkpoint) if self.checkpoint else -1

    @errors_in_transport()
    def check_lock(self) -> None:
        """Raise, in a form that passes through Spark, before a batch is written when another run has taken over."""
        self.lock.check()


class RecordDecoder(Protocol):
    """What decodes in a worker: columns of messages in, rows out. It can be pickled."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns of messages that it wants."""

    @property
    def ddl(self) -> str:
        """The columns of the rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batch by batch."""


@dataclass(frozen=True)
class SourceFilling:
    """A feed that fills the topic which a source reads, for as long as the pipeline runs."""

    feed: str
    topic: str
    options: Mapping[str, Any]
    where: str
    """Where others send to, in words."""


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A source of a pipeline: where a query's rows come from.

    A subclass is a frozen dataclass. Its fields, made with `option`, are the keys that a pipeline may give; the first
    line of its docstring is its help. An instance is made again wherever it is needed, so it holds options only.

    | method | called | how often |
    | --- | --- | --- |
    | `mistakes`, `columns`, `resources` | by `check` and by a run, without Spark | any number of times |
    | `prepare` | on the driver, before any query starts | once a run |
    | `resolved`, `load` | on the driver, with a Spark session | at each start of a query, also after a failure |

    `load` only describes the rows (a streaming DataFrame, or a static one when `context.static`). Spark keeps the
    offsets in the query's checkpoint and reads a batch again after a failure: the same offsets must give the same
    rows, or `resumes` must be False. Raise an `InputError` for what the user has to change and a `RunError` for what
    may work another time; in code that Spark runs in a worker, wrap either with `to_transport`.
    """

    streams: ClassVar[bool] = True
    """Whether it can be followed."""
    reads_whole: ClassVar[bool] = False
    """Whether it can be read once as a static table."""
    realtime: ClassVar[bool] = False
    continuous: ClassVar[bool] = False
    resumes: ClassVar[bool] = True
    """Whether what was read can be found again; if not, its queries start from scratch each time."""
    system: ClassVar[str] = ""
    """The connector's name of the system that has its records, where it reads them through another: `kafka`."""

    @property
    def continues_on_data_loss(self) -> bool:
        """Whether it continues where records are gone before they were read."""
        return False

    @property
    def matching(self) -> str | None:
        """The pattern by which it finds topics of Kafka that it does not name."""
        return None

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether what cannot be decoded becomes a dead letter."""
        return False

    @property
    def not_replayed(self) -> str | None:
        """Why what it gave in the past cannot be read once more, from the start, beside who reads it now; or None."""
        return "of kafka and files it is known that they keep what they gave; of this one it is not"

    def mistakes(self) -> Iterator[OptionMistake]:
        """What contradicts itself in the options."""
        return iter(())

    def columns(self) -> Schema | None:
        """The columns of its rows, when they are known without looking."""
        return None

    def resources(self) -> tuple[str, ...]:
        """Return what it reads, in the words of `Sink.resources`."""
        return ()

    def record_form(self) -> RecordForm | None:
        """Return how its records are encoded; None where no other pipeline writes them."""
        return None

    def topics(self) -> tuple[str, ...]:
        """The topics of Kafka that it names."""
        return ()

    def filling(self) -> SourceFilling | None:
        """The feed that must run while it is read, if one must."""
        return None

    def prepare(self, context: RunContext) -> None:  # noqa: B027 - most have nothing to do
        """Create what must exist before it is read; no Spark is needed."""

    def resolved(self, context: RunContext) -> Source:
        """Itself with what had to be looked up, as the schema of files."""
        del context
        return self

    @abstractmethod
    def load(self, context: RunContext) -> DataFrame:
        """Its rows, before any decoding."""


@dataclass(frozen=True, kw_only=True)
class MessageSource(Source):
    """A source whose rows carry bytes in a column `value`, which a format decodes; bad ones become dead letters.

    `load` returns the bytes and the `carried` columns; decoding happens in Spark's workers. Most sources of this kind
    derive from `DecodedSource`, which brings the options (`format`, `schema`, `include`, …), and add `load` and the
    target of the dead letters.
    """

    carried: ClassVar[dict[str, str]] = {}
    """The other columns that a pipeline may include, with their Spark types."""
    dead_letters_in_state_dir: ClassVar[bool] = False
    """Whether its dead letters are files in the run's folder, which Spark's workers write."""

    @property
    def decoding(self) -> str:
        """Who decodes: `arrow`, the format in workers; `spark`, its functions; `sift`, the source; `whole`, nobody."""
        return "arrow"

    def sift(self, raw: DataFrame) -> tuple[DataFrame, Column]:
        """Decoded rows with their bytes in `_bytes`, and a column that says why a row is bad (null when it is not)."""
        raise NotImplementedError

    @property
    @abstractmethod
    def bytes_format(self) -> Format:
        """What the bytes are."""

    @property
    @abstractmethod
    def included(self) -> tuple[str, ...]:
        """Which of the carried columns stay beside the decoded ones."""

    @property
    @abstractmethod
    def declared(self) -> Schema | None:
        """The schema that the pipeline gives."""

    @property
    @abstractmethod
    def when_bad(self) -> str:
        """`dead_letter`, `drop` or `fail`."""

    @property
    def keeps_dead_letters(self) -> bool:
        """As the pipeline says, unless there is nothing to decode."""
        return self.when_bad == "dead_letter" and self.decoding != "whole"

    def opened(self, context: RunContext, decoding: RecordDecoder | None) -> tuple[DataFrame, bool]:
        """Return its rows, and whether `decoding` was applied where they are read."""
        del decoding
        return self.load(context), False

    def by_spark(self) -> MessageSource:
        """Itself, decoded by Spark's own functions wherever they can."""
        return self

    @abstractmethod
    def dead_letter_target(self, context: RunContext) -> DeadLetterTarget:
        """Where its dead letters go."""


@dataclass(frozen=True, kw_only=True)
class Sink(ABC):
    """A sink of a pipeline: where the rows of a table go.

    A subclass is a frozen dataclass. Its fields, made with `option`, are the keys that a pipeline may give; the first
    line of its docstring is its help, and `delivery_guarantee` says in one sentence what survives a failure. An
    instance is made again wherever it is needed, so it holds options only.

    | method | called | how often |
    | --- | --- | --- |
    | `mistakes`, `resources` | by `check` and by a run, without Spark | any number of times |
    | `prepare` | on the driver, before any query starts | once a run |
    | `shape`, `stream` | on the driver | at each start of the query, also after a failure |
    | `write` | on the driver, in the query's thread | once a batch, and again with the same number after a failure |

    `write` must be safe on retry: a batch that failed half-way, or whose success Spark did not record, comes again
    with the same `batch` number and the same rows. Write under a key that is derived from the rows or from the batch
    number, or remember the last batch in the same transaction as the rows. Batch numbers start at 0 again with a new
    state folder, which `context.state_id` names. What `frame.foreachPartition` calls runs in a worker, must be
    picklable, may run twice for one partition, and wraps a `MillraceError` with `to_transport`.
    """

    delivery_guarantee: ClassVar[str]
    modes: ClassVar[tuple[str, ...]] = MODES
    realtime: ClassVar[bool] = False
    continuous: ClassVar[bool] = False
    resumes: ClassVar[bool] = True
    """Whether what it wrote is still there at the next run; if not, its query starts from scratch each time."""
    exclusive_target: ClassVar[bool] = False
    """Whether no other sink may write to what it touches."""
    midway: ClassVar[bool] = True
    """Whether its first batch may be a later one of its query; if not, it cannot be added to one that has run."""
    updates_by_key: ClassVar[bool] = False
    """Whether readers find the newest version of an updated row by the option `key` only."""
    unique_columns: ClassVar[bool] = False
    """Whether it writes columns by their names, of which each must be there once."""
    transient: ClassVar[bool] = False
    """Whether what it writes is only looked at while it runs: a replay does without."""

    def mistakes(self) -> Iterator[OptionMistake]:
        """What contradicts itself in the options."""
        return iter(())

    def prepare(self, context: RunContext) -> None:  # noqa: B027 - most have nothing to do
        """Create what must exist before it is written to; no Spark is needed."""

    def resources(self, table: str) -> tuple[str, ...]:
        """What it writes for a table, in words that are equal for the same thing: `topic posts`, `folder out`."""
        del table
        return ()

    def record_form(self) -> RecordForm | None:
        """Return how it encodes rows; None where no other pipeline reads them."""
        return None

    @property
    def needs_single_writer(self) -> bool:
        """Whether only one run of a pipeline at a time may write, since two would take transactions from each other."""
        return False

    def require_new(self) -> None:  # noqa: B027 - most can take more at any time
        """Raise if its output holds data that a query which starts from scratch cannot be added to."""

    def require_newest(self, context: RunContext) -> None:  # noqa: B027 - most cannot tell
        """Raise when it holds what comes after the newest batch that its query knows: its checkpoint is an old one."""

    def release(self, context: RunContext) -> None:  # noqa: B027 - most hold nothing
        """Release what a batch that failed or was interrupted still holds open; the run is about to end."""

    def in_generation(self, number: int) -> Mapping[str, Any] | None:
        """The options by which it writes to a generation of its output; None where there can only be one."""
        del number
        return None

    def is_there(self, context: RunContext) -> bool:
        """Whether something has the name of its output."""
        del context
        return False

    def prepare_like(self, other: Sink, context: RunContext) -> None:  # noqa: B027 - most have nothing to do
        """Make its output as that of another is, of which it is a generation."""

    def shape(self, frame: DataFrame) -> DataFrame:
        """The table's rows in the form in which they are written."""
        return frame

    @abstractmethod
    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        """Write one batch of shaped rows; returns when it is safe, raises when it is not."""

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        """Say to Spark where a stream of shaped rows goes: batch by batch, unless Spark has a way of its own."""

        def each(frame: DataFrame, batch: int) -> None:
            context.check_lock()
            self.write(frame, batch, context)

        return rows.foreachBatch(each)


def whole_batch(frame: DataFrame) -> DataFrame:
    """Return every row of a batch, computed once and kept as long as it is used.

    A sink that reads only a few rows would leave the others undone: not decoded, no dead letters, no state written. It
    is not `persist`, which fails on sorted batches in Spark 4.3.
    """
    return frame.localCheckpoint(eager=True)


SOURCES = PluginRegistry("millrace.connectors", Source, "source")
SINKS = PluginRegistry("millrace.connectors", Sink, "sink")


def retry_timeout_option(help: str) -> Any:  # noqa: A002 - as `option` calls it
    """Return the option that limits how long requests to a system that is away are repeated."""
    return option(120.0, help, parse=parse_duration, shown_default="2m", aliases=("patience",))


def require_no_mistakes(mistakes: list[OptionMistake], what: str, **more: Any) -> None:
    """Raise the first mistake, where `check` did not run before."""
    if mistakes:
        first = mistakes[0]
        raise InvalidDefinition(f"{what}: {first.message}", hint=first.hint, why=first.why, **more)
