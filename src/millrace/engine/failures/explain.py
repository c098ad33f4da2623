"""What Spark throws, turned into one of our errors: what, where, why and what to do, with no Java in it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from millrace.clients.kafka.bulk_fetch import records_lost
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.security_diagnosis import access_denied
from millrace.connectors import foreach
from millrace.engine.checkpoints.checkpoint import batch_ranges, ranges_text
from millrace.engine.checkpoints.data_loss import lost_offsets
from millrace.engine.failures.classify import KAFKA_AWAY
from millrace.errors import (
    AccessDenied,
    CheckpointIncompatible,
    DiskFull,
    FunctionFailed,
    InvalidQuery,
    KafkaUnreachable,
    MillraceError,
    OffsetsGone,
    QueryFailed,
    RunError,
    SinkFailed,
    SourceLocation,
    SparkFailed,
    UnknownTopic,
)
from millrace.errors.spark_text import (
    PythonError,
    PythonFrame,
    call_site,
    full_text,
    java_causes,
    plain_text,
    python_error_in,
    python_error_of,
    root_cause,
    sql_position,
)
from millrace.errors.transport import from_transport
from millrace.object_stores import StoreFailed

_NOT_ALLOWED = re.compile(r"The operator\(s\): (.+?) (?:is|are) not in the operator allowlist for Real-Time Mode")
_NO_SPACE = re.compile(r"^.*(?:No space left on device|Disk quota exceeded).*$", re.MULTILINE)
_LOST = "Some data may have been lost"
_LOST_RANGE = re.compile(r"in (?:offset )?\[(\d+), (\d+)\) for topic partition (\S+)-(\d+)")
_LOST_REWOUND = re.compile(r"Partition (\S+)-(\d+) offset was changed from (\d+) to (\d+)")
_LOST_PARTITIONS = re.compile(r"Partitions Set\((.+?)\) have been deleted")
_UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"
_SUBSCRIBED = re.compile(r"KafkaV2\[(?:Subscribe|Assign|SubscribePattern)\[(.+?)\]\]")
_UNREACHABLE = re.compile(KAFKA_AWAY)
_DENIED = re.compile(
    r"(?:Sasl|Ssl)AuthenticationException|(?:Topic|Group|Cluster|TransactionalId)AuthorizationException"
    r"|javax\.security\.auth\.login\.LoginException|UnsupportedSaslMechanismException"
)
_CHECKPOINT = re.compile(
    r"STATE_STORE_\w*NOT_COMPATIBLE|STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA|STATE_STORE_\w*(?:MISMATCH|INVALID)\w*"
    r"|sources in the checkpoint offsets and now there are|Log file was malformed|INCOMPATIBLE_\w*(?:STATE|CHECKPOINT)"
)
_SCHEMAS = re.compile(r"Existing (key|value)_schema=(.+?) and new \1_schema=(.+?)\.\n")
_FOREACH_FILE = "/".join(foreach.__name__.split(".")) + ".py"
_SPARK_FOREACH = ("func_without_process", "func_with_open_process_close")
_FIELD = re.compile(r"StructField\((\w+),")


@dataclass(frozen=True)
class Failure:
    """An exception on its way to become an error of ours."""

    error: BaseException
    place: SourceLocation | None
    cluster: Cluster | None
    checkpoint: Path | None = None

    @cached_property
    def text(self) -> str:
        """Everything that it says."""
        return full_text(self.error)

    @cached_property
    def where(self) -> str | None:
        """The records of the batch that failed, in words."""
        return ranges_text(batch_ranges(self.text)) or None


def explain(
    error: BaseException,
    *,
    place: SourceLocation | None = None,
    cluster: Cluster | None = None,
    checkpoint: Path | None = None,
) -> MillraceError:
    """The error to show for an exception; `place` is told when it does not know a better one itself.

    With the cluster and the query's checkpoint at hand, lost offsets are named exactly, and all of them.
    """
    if isinstance(error, MillraceError):
        return error
    failure = Failure(error, place, cluster, checkpoint)
    made = next(made for rule in _RULES if (made := rule(failure)) is not None)
    made.place = made.place or place
    return made


def _carried(failure: Failure) -> MillraceError | None:
    """An error of ours that was raised in a worker, or in a function that Spark calls for each batch."""
    found = from_transport(failure.text)
    if isinstance(found, OffsetsGone) and (told := _all_gone(failure)):
        return records_lost(told)
    return found


def _jvm_gone(failure: Failure) -> MillraceError | None:
    if not type(failure.error).__name__.startswith("Py4JNetwork") and not _lost_by_py4j(failure.error):
        return None
    return SparkFailed(
        "Spark's JVM has ended", why=str(failure.error).strip() or None, hint="its log says why; was memory short?"
    )


def _lost_by_py4j(error: BaseException) -> bool:
    """Whether a connection was lost on the way to the JVM: functions of the user's have connections of their own."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return isinstance(error, ConnectionError) and (not files or any("py4j" in Path(file).parts for file in files))


def _store(failure: Failure) -> MillraceError | None:
    error = failure.error
    if not isinstance(error, StoreFailed):
        return None
    ended = _jvm_gone(replace(failure, error=error.__cause__)) if error.__cause__ else None
    return ended or RunError(
        f"{error.filename} cannot be read or written",
        why=error.strerror,
        hint="check that the store is there and that its keys allow it; the batch in hand is repeated",
    )


def _disk_full(failure: Failure) -> MillraceError | None:
    found = _NO_SPACE.search(failure.text)
    if not found:
        return None
    hint = "make room (the state folder, the sink's folder and the temporary folder are written to) and run again"
    return DiskFull("no space is left on the disk", why=plain_text(found[0]), hint=f"{hint}: the batch is repeated")


def _offsets_gone(failure: Failure) -> MillraceError | None:
    if _LOST not in failure.text:
        return None
    return records_lost(_what_is_gone(failure))


def _all_gone(failure: Failure) -> str:
    """Everything that is gone of what the query reads next; a task knows its own part only."""
    if failure.cluster and failure.checkpoint:
        with suppress(Exception):  # it is an extra; what failed is told without it
            return "; ".join(map(str, lost_offsets(failure.checkpoint, failure.cluster)))
    return ""


def _what_is_gone(failure: Failure) -> str:
    if told := _all_gone(failure):
        return told
    if found := _LOST_RANGE.search(failure.text):
        first, end, topic, partition = int(found[1]), int(found[2]), found[3], int(found[4])
        held = _earliest(failure.cluster, topic, partition)
        of = f"topic {topic!r}, partition {partition}"
        if held is not None and held > first:
            return f"{of}: offsets {first} to {held - 1} are gone, the first that is there is {held}"
        return f"{of}: not all offsets from {first} to {end - 1} are there any more"
    if found := _LOST_REWOUND.search(failure.text):
        return (
            f"topic {found[1]!r}, partition {found[2]}: the query is at offset {found[3]}, the topic ends at {found[4]}"
        )
    if found := _LOST_PARTITIONS.search(failure.text):
        return f"partitions that the query has read from are gone: {found[1]}"
    return "records that were not read yet are gone from Kafka"


def _earliest(cluster: Cluster | None, topic: str, partition: int) -> int | None:
    if cluster is None:
        return None
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    from millrace.clients.kafka import offsets

    with suppress(Exception):  # it is an extra; what failed is told without it
        return offsets.list_available_offsets(cluster, [TopicPartition(topic, partition)], OffsetSpec.earliest())[
            topic, partition
        ]
    return None


def _checkpoint(failure: Failure) -> MillraceError | None:
    if not _CHECKPOINT.search(failure.text):
        return None
    return CheckpointIncompatible(
        "the query was changed in a way that its checkpoint cannot follow",
        why=_what_changed(failure),
        hint="undo the change, or start anew with another --state; "
        "the old checkpoint holds how far the sources were read, and the state",
    )


def _what_changed(failure: Failure) -> str:
    found = _SCHEMAS.search(failure.text)
    if not found:
        return root_cause(failure.error).partition("\n")[0]
    before, now = (", ".join(_FIELD.findall(schema)) or "nothing" for schema in found.groups()[1:])
    kind = "is kept by" if found[1] == "key" else "holds"
    same = " (of another type)" if before == now else ""
    return f"its state {kind} {before}; the query now wants {now}{same}"


def _kafka(failure: Failure) -> MillraceError | None:
    why = root_cause(failure.error)
    if _DENIED.search(failure.text):
        return _denied(failure, why)
    if _UNKNOWN_TOPIC in failure.text:
        named = _SUBSCRIBED.search(failure.text)
        what = f"there is no topic {named[1]!r}" if named else "a topic or partition that is read does not exist"
        return UnknownTopic(what, why=why, hint="millrace kafka topics list shows what there is")
    if _UNREACHABLE.search(failure.text):
        return KafkaUnreachable("no broker answers", why=why, hint="check the address and that a broker runs there")
    return None


def _denied(failure: Failure, why: str) -> MillraceError:
    """With the cluster at hand, in one sentence: who is not let in where, or what is wrong with which certificate."""
    cluster = failure.cluster
    spoken = "\n".join([why, *_DENIED.findall(failure.text), *(cause.message for cause in java_causes(failure.error))])
    made = access_denied(spoken, cluster.bootstrap, cluster.options, "read or write") if cluster else None
    return made or AccessDenied("Kafka refuses us", why=why, hint="check the file given by --kafka-config")


def _function(failure: Failure) -> MillraceError | None:
    """A function of the user's, run by Spark in a worker or for a batch."""
    found = python_error_in(failure.text)
    return _function_failed(found, failure.where) if found and found.place else None


def _function_failed(found: PythonError, where: str | None) -> FunctionFailed:
    kind = SinkFailed if any(_is_sink(frame) for frame in found.frames) else FunctionFailed
    return kind(
        f"{_named(found)} raised {found}",
        why=f"in a batch of {where}" if where else None,
        place=found.place,
        hint="mend it and run again: the batch is repeated" if where else "mend it and run again",
    )


def _is_sink(frame: PythonFrame) -> bool:
    """Return whether a frame belongs to the foreach sink, ours or Spark's own."""
    return frame.file.endswith(_FOREACH_FILE) or frame.function in _SPARK_FOREACH


def _named(found: PythonError) -> str:
    frame = found.user_frame
    return f"the function {frame.function}" if frame and not frame.function.startswith("<") else "a function"


def _real_time(failure: Failure) -> MillraceError | None:
    """What real-time mode refuses when a query starts; Spark's own advice is not to ask."""
    found = _NOT_ALLOWED.search(failure.text)
    if found is None:
        return None
    named = ", ".join(one.rpartition(".")[2] for one in found[1].split(", "))
    return InvalidQuery(
        f"Spark's real-time mode does not do {named}",
        hint="use another trigger; `millrace check --deep` names a table with a Python function",
    )


def _analysis(failure: Failure) -> MillraceError | None:
    from pyspark.errors import (
        AnalysisException,
        IllegalArgumentException,
        PySparkException,
        StreamingQueryException,
    )

    error = failure.error
    spoken = isinstance(error, AnalysisException | IllegalArgumentException)
    if not spoken and "[DATA_SOURCE_NOT_FOUND]" not in failure.text:
        # A call that PySpark itself refuses never reaches the JVM and has no Java behind it.
        refused = isinstance(error, PySparkException) and not hasattr(error, "_origin")
        if not refused or isinstance(error, StreamingQueryException):
            return None
        return InvalidQuery(plain_text(str(error)), place=python_error_of(error).place)
    message, hint = _analysed(error)
    position = sql_position(str(error))
    site = call_site(error) or python_error_of(error).place
    if position is None or site is not None:
        return InvalidQuery(message, hint=hint, place=site)
    why = f"at line {position[0]}, column {position[1]} of the SQL"
    return InvalidQuery(message, hint=hint, why=why, place=_shifted(failure.place, position[0]))


def _analysed(error: BaseException) -> tuple[str, str | None]:
    """Message and hint; for the commonest mistakes in words of our own."""
    condition, told = "", {}
    with suppress(Exception):
        condition = error.getCondition() or ""  # type: ignore[attr-defined]
        told = dict(error.getMessageParameters() or {})  # type: ignore[attr-defined]
    if condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION":
        return f"there is no column {told['objectName']}", f"did you mean one of {told['proposal']}?"
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return f"there is no table {told['relationName']}", None
    return plain_text(str(error)) if condition != "DATA_SOURCE_NOT_FOUND" else root_cause(error), None


def _shifted(place: SourceLocation | None, line: int) -> SourceLocation | None:
    """A line of the SQL as a line of the file that the SQL stands in."""
    return SourceLocation(place.file, place.line + line - 1) if place and place.line else place


def _query(failure: Failure) -> MillraceError | None:
    """Any other failure of a running query."""
    if not hasattr(failure.error, "_origin") and not hasattr(failure.error, "java_exception"):
        return None
    where = f" in a batch of {failure.where}" if failure.where else ""
    return QueryFailed(
        f"Spark failed{where}: {root_cause(failure.error)}",
        place=call_site(failure.error),
        hint="mend the cause and run again: it goes on where it was",
    )


def _python(failure: Failure) -> MillraceError:
    """An exception of plain Python, out of the user's code as a rule."""
    return _function_failed(python_error_of(failure.error), None)


_RULES: tuple[Callable[[Failure], MillraceError | None], ...] = (
    _carried,
    _jvm_gone,
    _store,
    _disk_full,
    _offsets_gone,
    _checkpoint,
    _kafka,
    _function,
    _real_time,
    _analysis,
    _query,
    _python,
)
