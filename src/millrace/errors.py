"""Every error that Millrace raises on purpose: one tree, each with a condition id, a place and a hint.

    MillraceError                    exit  condition
    ├── InputError                      2  what was typed or given is wrong
    │   ├── InvalidOption               2  option.invalid
    │   ├── InvalidSetting              2  setting.invalid
    │   ├── UnknownName                 2  name.unknown
    │   ├── InvalidDefinition           2  pipeline.invalid
    │   ├── InvalidSchema               2  schema.invalid
    │   ├── InvalidSql                  2  sql.invalid
    │   ├── StateMismatch               2  state.mismatch
    │   ├── InvalidQuery                2  spark.analysis
    │   ├── CheckpointIncompatible      2  checkpoint.incompatible
    │   ├── InvalidReplay               2  replay.invalid
    │   ├── NotUtf8                     2  input.not-utf8
    │   ├── FileUnusable                2  file.unusable
    │   ├── PortInUse                   2  port.in-use
    │   ├── DataDirInUse                2  kafka.data-in-use
    │   ├── DataDirMismatch             2  kafka.data-mismatch
    │   ├── NoCluster                   2  kafka.none
    │   ├── AccessDenied                2  kafka.access-denied
    │   ├── FeedInUse                   2  feed.in-use
    │   ├── UnknownTopic                2  kafka.topic-unknown
    │   ├── InvalidTopic                2  kafka.topic-invalid
    │   ├── UnknownGroup                2  kafka.group-unknown
    │   ├── GroupInUse                  2  kafka.group-in-use
    │   ├── NoCassandra                 2  cassandra.none
    │   ├── CassandraDenied             2  cassandra.access-denied
    │   ├── CassandraInUse              2  cassandra.data-in-use
    │   ├── CassandraMismatch           2  cassandra.data-mismatch
    │   ├── UnknownTable                2  cassandra.table-unknown
    │   ├── InvalidTable                2  cassandra.table-invalid
    │   ├── InvalidCql                  2  cassandra.cql-invalid
    │   ├── MissingExtra                2  extra.missing
    │   ├── KinesisDenied               2  kinesis.access-denied
    │   └── UnknownStream               2  kinesis.stream-unknown
    └── RunError                        1  it was asked for rightly and did not work
        ├── JavaUnusable                1  java.unusable
        ├── FetchFailed                 1  jars.fetch-failed
        ├── ServiceFailed               1  service.failed
        ├── KafkaUnreachable            1  kafka.unreachable
        ├── KafkaFailed                 1  kafka.failed
        ├── TopicGone                   1  kafka.topic-gone
        ├── NotDelivered                1  kafka.not-delivered
        │   └── RecordRefused           1  kafka.record-refused
        ├── CommitUnknown               1  kafka.commit-unknown
        ├── TakenOver                   1  kafka.taken-over
        ├── RedriveBusy                 1  dead.redrive-busy
        ├── NotRedrivable               1  dead.not-redrivable
        ├── BadRecord                   1  record.bad
        ├── RegistryUnreachable         1  registry.unreachable
        ├── RegistryRefused             1  registry.refused
        ├── SparkFailed                 1  spark.failed
        ├── QueryFailed                 1  query.failed
        ├── FunctionFailed              1  function.failed
        │   └── SinkFailed              1  sink.failed
        ├── NotReady                    1  run.not-ready
        ├── OffsetsGone                 1  kafka.offsets-gone
        ├── DiskFull                    1  disk.full
        ├── CassandraUnreachable        1  cassandra.unreachable
        ├── CassandraFailed             1  cassandra.failed
        ├── RowRefused                  1  cassandra.row-refused
        ├── KinesisUnreachable          1  kinesis.unreachable
        ├── KinesisFailed               1  kinesis.failed
        ├── RecordsGone                 1  kinesis.records-gone
        └── FeedFailed                  1  feed.failed

A message says what is wrong; `why` gives the cause, `hint` what to do, `place` where (`file:line`).
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

from millrace.masking import hidden, without_passwords

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in the user's files."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a pipeline's file, or (as a warning) that may be; `check` lists them all."""

    condition: str
    message: str
    place: Place | None = None
    hint: str | None = None
    why: str | None = None
    severity: str = "error"

    def __post_init__(self) -> None:
        for name in ("message", "hint", "why"):
            if said := getattr(self, name):
                object.__setattr__(self, name, hidden(said))

    def lines(self) -> list[str]:
        """The problem as a compiler would tell it, without colour."""
        at = f"{self.place}: " if self.place else ""
        shown = [f"{at}{self.severity}[{self.condition}]: {self.message}"]
        shown += [f"  why: {self.why}"] if self.why else []
        shown += [f"  try: {self.hint}"] if self.hint else []
        return shown


class MillraceError(Exception):
    """Anything that Millrace reports in one message instead of a stack trace."""

    condition: ClassVar[str] = "millrace.error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, why: str | None = None, place: Place | None = None
    ) -> None:
        message = without_passwords(message)
        super().__init__(message)
        self.message = message
        self.hint = hidden(hint) if hint else hint
        self.why = without_passwords(why) if why else why
        self.place = place

    def lines(self) -> list[str]:
        """The message as it is shown, without colour."""
        shown = [f"error[{self.condition}]: {self.message}"]
        shown += [f"  at:  {self.place}"] if self.place else []
        shown += [f"  why: {self.why}"] if self.why else []
        shown += [f"  try: {self.hint}"] if self.hint else []
        return shown


class InputError(MillraceError):
    """What was typed or given is wrong; the same call fails again until it is changed."""

    condition = "input.invalid"
    exit_code = 2


class InvalidOption(InputError):
    """An option's value cannot be read, or options contradict each other."""

    condition = "option.invalid"


class InvalidSetting(InputError):
    """An environment variable or a settings file holds a value that cannot be used."""

    condition = "setting.invalid"


class UnknownName(InputError):
    """A name (of a jar set, a feed, a sink) that is not known."""

    condition = "name.unknown"

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """An error that lists what is known and guesses what was meant."""
        names = sorted(known)
        return cls(f"there is no {kind} named {name!r}", hint=did_you_mean(name, names))


class InvalidDefinition(InputError):
    """A pipeline's file cannot be read as one, or has problems that `check` lists."""

    condition = "pipeline.invalid"
    problems: tuple[Problem, ...] = ()
    """All that is wrong, when it is more than the message says."""

    @classmethod
    def listing(cls, file: str, problems: Iterable[Problem]) -> InvalidDefinition:
        """One error that tells several problems of a file."""
        found = tuple(problems)
        error = cls(f"{file} has {len(found)} problem{'s' if len(found) > 1 else ''}")
        error.problems = found
        return error

    def lines(self) -> list[str]:
        """The message, then every problem."""
        return [*super().lines(), *(line for problem in self.problems for line in problem.lines())]


class InvalidSchema(InputError):
    """A schema that cannot be parsed or used; `line` and `column` count from 1 within its text."""

    condition = "schema.invalid"
    line: int | None = None
    column: int | None = None


class InvalidSql(InputError):
    """SQL that cannot be parsed; `line` and `column` count from 1 within the text."""

    condition = "sql.invalid"
    line = 1
    column = 1


class StateMismatch(InputError):
    """A state folder holds the checkpoints of another pipeline, or another run uses it."""

    condition = "state.mismatch"


class InvalidQuery(InputError):
    """Spark cannot make a plan of what was written: an unknown column, types that do not fit, an operation refused."""

    condition = "spark.analysis"


class CheckpointIncompatible(InputError):
    """A query was changed in a way that its checkpoint cannot follow."""

    condition = "checkpoint.incompatible"


class InvalidReplay(InputError):
    """A replay, a switch or a generation that cannot be: nothing to read again, no such one, not finished."""

    condition = "replay.invalid"


class NotUtf8(InputError):
    """Text was expected and the bytes are not UTF-8."""

    condition = "input.not-utf8"


class FileUnusable(InputError):
    """A file that was named cannot be read or written."""

    condition = "file.unusable"


class PortInUse(InputError):
    """The chosen port belongs to another process."""

    condition = "port.in-use"


class DataDirInUse(InputError):
    """Another process uses this data directory."""

    condition = "kafka.data-in-use"


class DataDirMismatch(InputError):
    """The data directory belongs to a cluster of another shape, or is not a broker's at all."""

    condition = "kafka.data-mismatch"


class NoCluster(InputError):
    """No cluster was named and none of ours runs here."""

    condition = "kafka.none"


class AccessDenied(InputError):
    """The cluster refuses the credentials, the certificate, or what they are used for."""

    condition = "kafka.access-denied"


class FeedInUse(InputError):
    """Another run of the same feed writes to the same place, and both would save their position."""

    condition = "feed.in-use"


class UnknownTopic(InputError):
    """A topic that does not exist, or a partition that it does not have."""

    condition = "kafka.topic-unknown"


class InvalidTopic(InputError):
    """A topic cannot be made or changed as asked."""

    condition = "kafka.topic-invalid"


class UnknownGroup(InputError):
    """A consumer group that does not exist."""

    condition = "kafka.group-unknown"


class GroupInUse(InputError):
    """A consumer group has members, so its offsets must not be changed."""

    condition = "kafka.group-in-use"


class NoCassandra(InputError):
    """No Cassandra was named and none of ours runs here."""

    condition = "cassandra.none"


class CassandraDenied(InputError):
    """Cassandra refuses the user, the certificate, or what is asked for."""

    condition = "cassandra.access-denied"


class CassandraInUse(InputError):
    """Another process uses this data folder of a Cassandra."""

    condition = "cassandra.data-in-use"


class CassandraMismatch(InputError):
    """The data folder is not one of a Cassandra of ours."""

    condition = "cassandra.data-mismatch"


class UnknownTable(InputError):
    """A keyspace or a table that does not exist."""

    condition = "cassandra.table-unknown"


class InvalidTable(InputError):
    """A table of Cassandra and the rows for it do not fit: a column, a type or the key."""

    condition = "cassandra.table-invalid"


class InvalidCql(InputError):
    """A statement that Cassandra cannot parse or carry out as it is."""

    condition = "cassandra.cql-invalid"


class MissingExtra(InputError):
    """A package that Millrace does not bring by itself is needed and not installed."""

    condition = "extra.missing"


class KinesisDenied(InputError):
    """AWS refuses the keys, or what they are used for."""

    condition = "kinesis.access-denied"


class UnknownStream(InputError):
    """A stream of Kinesis that does not exist."""

    condition = "kinesis.stream-unknown"


class RunError(MillraceError):
    """What was asked for is right and did not work; it may work another time."""

    condition = "run.failed"


class JavaUnusable(RunError):
    """No Java was found, or it is too old."""

    condition = "java.unusable"


class FetchFailed(RunError):
    """Jars could not be fetched, or are not what they should be."""

    condition = "jars.fetch-failed"


class ServiceFailed(RunError):
    """A child process did not start, or ended by itself."""

    condition = "service.failed"


class KafkaUnreachable(RunError):
    """No broker answers at the address."""

    condition = "kafka.unreachable"


class KafkaFailed(RunError):
    """Kafka refused or failed a request for a reason of its own."""

    condition = "kafka.failed"


class TopicGone(RunError):
    """A topic disappeared while it was in use."""

    condition = "kafka.topic-gone"


class NotDelivered(RunError):
    """Records were not taken by Kafka."""

    condition = "kafka.not-delivered"


class RecordRefused(NotDelivered):
    """A record that the topic will never take, however often it is sent."""

    condition = "kafka.record-refused"


class CommitUnknown(RunError):
    """A transaction's commit was asked for and not answered."""

    condition = "kafka.commit-unknown"


class TakenOver(RunError):
    """Another run writes in the name of this one."""

    condition = "kafka.taken-over"


class RedriveBusy(RunError):
    """Another redrive of the same dead letters is at work, or has taken over."""

    condition = "dead.redrive-busy"


class NotRedrivable(RunError):
    """Dead letters whose records cannot be put back where they came from."""

    condition = "dead.not-redrivable"


class RegistryUnreachable(RunError):
    """The schema registry does not answer, or not as one."""

    condition = "registry.unreachable"


class RegistryRefused(RunError):
    """The schema registry answers and refuses what is asked: the password, or a schema that does not fit."""

    condition = "registry.refused"


class BadRecord(RunError):
    """A record that cannot be decoded, in a source that is told to fail then."""

    condition = "record.bad"


class SparkFailed(RunError):
    """Spark did not start, or its JVM ended by itself."""

    condition = "spark.failed"


class QueryFailed(RunError):
    """A query stopped because a batch of it failed."""

    condition = "query.failed"


class FunctionFailed(RunError):
    """A function of the user's raised while Spark ran it."""

    condition = "function.failed"


class SinkFailed(FunctionFailed):
    """A function of the user's that writes raised; another time it may not, when what it writes to was away."""

    condition = "sink.failed"


class NotReady(RunError):
    """A run was asked for something that is there only when it has started."""

    condition = "run.not-ready"


class OffsetsGone(RunError):
    """Records that a query has not read yet are no longer in Kafka."""

    condition = "kafka.offsets-gone"


class DiskFull(RunError):
    """There is no space left where Spark or a sink writes."""

    condition = "disk.full"


class CassandraUnreachable(RunError):
    """No node of Cassandra answers at the address."""

    condition = "cassandra.unreachable"


class CassandraFailed(RunError):
    """Cassandra failed a request for a reason of its own."""

    condition = "cassandra.failed"


class RowRefused(RunError):
    """A row that a table of Cassandra will never take, however often it is sent."""

    condition = "cassandra.row-refused"


class KinesisUnreachable(RunError):
    """Kinesis does not answer at the address."""

    condition = "kinesis.unreachable"


class KinesisFailed(RunError):
    """Kinesis failed a request for a reason of its own, or has had no capacity for too long."""

    condition = "kinesis.failed"


class RecordsGone(RunError):
    """Records that were not read yet are no longer in the stream of Kinesis."""

    condition = "kinesis.records-gone"


class FeedFailed(RunError):
    """A feed's origin cannot be read any more."""

    condition = "feed.failed"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known name, and all of them when they are few."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    if not names:
        return "there are none yet"
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"there are: {shown}"
