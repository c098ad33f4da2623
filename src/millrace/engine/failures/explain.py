"""Turn what Spark throws into one of our errors: what, where, why and what to do, with no Java in it.

- The rules are tried in the order of `_RULES`; each recognizes one kind of failure.
- A rule recognizes a failure by the class of the exception, by its Spark error condition, or by the names of its Java
  causes. Text is searched only for what has no name, and for details such as offsets.
- With the cluster and the query's checkpoint, lost offsets are named exactly, and all of them.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from millrace import errors
from millrace.clients.kafka.bulk_fetch import records_lost
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.security_diagnosis import access_denied
from millrace.connectors import foreach
from millrace.engine.checkpoints.checkpoint import batch_ranges, ranges_text
from millrace.engine.checkpoints.data_loss import earliest_offsets, lost_offsets
from millrace.engine.failures.classify import KAFKA_UNREACHABLE
from millrace.errors import FunctionFailed, InvalidQuery, MillraceError, SourceLocation, spark_text
from millrace.errors.transport import from_transport
from millrace.object_stores import StoreFailed

_DENIED_NAMES = {"SaslAuthentication", "SslAuthentication", "UnsupportedSaslMechanism"} | {
    f"{subject}Authorization" for subject in ("Topic", "Group", "Cluster", "TransactionalId")
}
_CHECKPOINT_NAME = re.compile(
    r"STATE_STORE_\w*(?:NOT_COMPATIBLE|MISMATCH|INVALID)\w*|\w*STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
    r"|INCOMPATIBLE_\w*(?:STATE|CHECKPOINT)\w*"
)
"""Spark conditions of a checkpoint that another query wrote."""
_CHECKPOINT_TEXT = re.compile(r"sources in the checkpoint offsets and now there are|Log file was malformed")
"""The same, thrown as an assertion or an IllegalStateException."""
_DATA_LOSS_TEXT = "Some data may have been lost"
_NO_SPACE_TEXT = re.compile(r"^.*(?:No space left on device|Disk quota exceeded).*$", re.MULTILINE)
_UNREACHABLE_TEXT = re.compile(KAFKA_UNREACHABLE)
_REFUSED_OPERATORS = re.compile(r"The operator\(s\): (.+?) (?:is|are) not in the operator allowlist for Real-Time Mode")
_LOST_RANGE = re.compile(r"in (?:offset )?\[(\d+), (\d+)\) for topic partition (\S+)-(\d+)")
_LOST_REWOUND = re.compile(r"Partition (\S+)-(\d+) offset was changed from (\d+) to (\d+)")
_LOST_PARTITIONS = re.compile(r"Partitions Set\((.+?)\) have been deleted")
_SUBSCRIBED = re.compile(r"KafkaV2\[(?:Subscribe|Assign|SubscribePattern)\[(.+?)\]\]")
_SCHEMAS = re.compile(r"Existing (key|value)_schema=(.+?) and new \1_schema=(.+?)\.\n")
_FIELD = re.compile(r"StructField\((\w+),")
_FOREACH_FILE = "/".join(foreach.__name__.split(".")) + ".py"
_SPARK_FOREACH = ("func_without_process", "func_with_open_process_close")


@dataclass(frozen=True)
class Failure:
    """An exception that is to be explained."""

    error: BaseException
    place: SourceLocation | None
    cluster: Cluster | None
    checkpoint: Path | None = None

    @cached_property
    def text(self) -> str:
        return spark_text.full_text(self.error)

    @cached_property
    def names(self) -> frozenset[str]:
        """The Java classes and Spark conditions of the causes, and those that tasks pass on as text."""
        conditions = [cause.condition.partition(".")[0] for cause in spark_text.java_causes(self.error)]
        return spark_text.error_names(self.text) | frozenset(filter(None, conditions))

    @cached_property
    def root_cause(self) -> str:
        return spark_text.root_cause(self.error)

    @cached_property
    def records(self) -> str:
        """The Kafka records of the batch that failed, in words."""
        return ranges_text(batch_ranges(self.text))


def explain(
    error: BaseException,
    *,
    place: SourceLocation | None = None,
    cluster: Cluster | None = None,
    checkpoint: Path | None = None,
) -> MillraceError:
    """Return the error to show for an exception; `place` is shown when no rule finds a better one."""
    if isinstance(error, MillraceError):
        return error
    failure = Failure(error, place, cluster, checkpoint)
    explained = next(explained for rule in _RULES if (explained := rule(failure)) is not None)
    explained.place = explained.place or place
    return explained


@contextmanager
def explained(place: SourceLocation | None = None) -> Iterator[None]:
    """Raise what fails in this context as the error to show; `place` is shown when it has no better one."""
    try:
        yield
    except MillraceError as error:
        error.place = error.place or place
        raise
    except Exception as error:
        raise explain(error, place=place) from error


def _transported(failure: Failure) -> MillraceError | None:
    """An error of ours that was raised in a worker, or in a function that Spark calls for each batch."""
    error = from_transport(failure.text)
    if isinstance(error, errors.OffsetsGone) and (lost := _all_lost_offsets(failure)):
        return records_lost(lost)
    return error


def _jvm_ended(failure: Failure) -> MillraceError | None:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    # A connection that was lost outside Py4J is the user's: functions have connections of their own.
    files = [frame.filename for frame in traceback.extract_tb(failure.error.__traceback__)]
    in_py4j = not files or any("py4j" in Path(file).parts for file in files)
    if not isinstance(failure.error, Py4JNetworkError) and not (isinstance(failure.error, ConnectionError) and in_py4j):
        return None
    return errors.SparkFailed(
        "Spark's JVM has ended", why=str(failure.error).strip() or None, hint="its log says why; was memory short?"
    )


def _store_failed(failure: Failure) -> MillraceError | None:
    error = failure.error
    if not isinstance(error, StoreFailed):
        return None
    ended = _jvm_ended(replace(failure, error=error.__cause__)) if error.__cause__ else None
    hint = "check that the store answers and that its keys allow it; the running batch is repeated"
    return ended or errors.RunError(f"{error.filename} cannot be read or written", why=error.strerror, hint=hint)


def _disk_full(failure: Failure) -> MillraceError | None:
    line = _NO_SPACE_TEXT.search(failure.text)
    if not line:
        return None
    hint = "make room (the state folder, the sink's folder and the temporary folder are written to) and run again"
    why = spark_text.plain_text(line[0])
    return errors.DiskFull("no space is left on the disk", why=why, hint=f"{hint}: the batch is repeated")


def _offsets_gone(failure: Failure) -> MillraceError | None:
    if "KAFKA_DATA_LOSS" not in failure.names and _DATA_LOSS_TEXT not in failure.text:
        return None
    return records_lost(_all_lost_offsets(failure) or _lost_offsets_in_text(failure))


def _all_lost_offsets(failure: Failure) -> str:
    """Return all offsets that the query reads next and Kafka has deleted; a task knows only its own."""
    if failure.cluster and failure.checkpoint:
        with suppress(Exception):  # the failure can be reported without it
            return "; ".join(map(str, lost_offsets(failure.checkpoint, failure.cluster)))
    return ""


def _lost_offsets_in_text(failure: Failure) -> str:
    if match := _LOST_RANGE.search(failure.text):
        start, end, topic, partition = int(match[1]), int(match[2]), match[3], int(match[4])
        earliest = 0
        with suppress(Exception):  # the failure can be reported without it
            earliest = (
                earliest_offsets(failure.cluster, [(topic, partition)])[topic, partition] if failure.cluster else 0
            )
        where = f"topic {topic!r}, partition {partition}"
        if earliest > start:
            return f"{where}: offsets {start} to {earliest - 1} are gone, the first that exists is {earliest}"
        return f"{where}: not all offsets from {start} to {end - 1} exist any more"
    if match := _LOST_REWOUND.search(failure.text):
        where = f"topic {match[1]!r}, partition {match[2]}"
        return f"{where}: the query is at offset {match[3]}, the topic ends at {match[4]}"
    if match := _LOST_PARTITIONS.search(failure.text):
        return f"partitions that the query has read from are gone: {match[1]}"
    return "records that were not read yet are gone from Kafka"


def _checkpoint_incompatible(failure: Failure) -> MillraceError | None:
    if not any(map(_CHECKPOINT_NAME.fullmatch, failure.names)) and not _CHECKPOINT_TEXT.search(failure.text):
        return None
    return errors.CheckpointIncompatible(
        "the query was changed in a way that its checkpoint cannot follow",
        why=_schema_change(failure.text) or failure.root_cause.partition("\n")[0],
        hint="undo the change, or start from scratch with another --state; "
        "the old checkpoint holds how far the sources were read, and the state",
    )


def _schema_change(text: str) -> str:
    match = _SCHEMAS.search(text)
    if not match:
        return ""
    before, now = (", ".join(_FIELD.findall(schema)) or "nothing" for schema in match.groups()[1:])
    kind = "is kept by" if match[1] == "key" else "holds"
    same = " (of another type)" if before == now else ""
    return f"its state {kind} {before}; the query now wants {now}{same}"


def _kafka_failed(failure: Failure) -> MillraceError | None:
    if failure.names & _DENIED_NAMES or "javax.security.auth.login.LoginException" in failure.text:
        return _access_denied(failure)
    if "UnknownTopicOrPartition" in failure.names:
        topic = _SUBSCRIBED.search(failure.text)
        return errors.UnknownTopic(
            f"there is no topic {topic[1]!r}" if topic else "a topic or partition that is read does not exist",
            why=failure.root_cause,
            hint="millrace kafka topics list shows the existing topics",
        )
    if _UNREACHABLE_TEXT.search(failure.text):
        hint = "check the address and that a broker runs there"
        return errors.KafkaUnreachable("no broker answers", why=failure.root_cause, hint=hint)
    return None


def _access_denied(failure: Failure) -> MillraceError:
    """With the cluster, say in one sentence who is refused where, or what is wrong with which certificate."""
    why, cluster = failure.root_cause, failure.cluster
    denials = [f"{name}Exception" for name in sorted(failure.names & _DENIED_NAMES)]
    text = "\n".join([why, *denials, *(cause.message for cause in spark_text.java_causes(failure.error))])
    denied = access_denied(text, cluster.bootstrap, cluster.options, "read or write") if cluster else None
    return denied or errors.AccessDenied("Kafka refuses us", why=why, hint="check the file given by --kafka-config")


def _function_in_text(failure: Failure) -> MillraceError | None:
    """A function of the user's that Spark ran in a worker or for a batch."""
    error = spark_text.python_error_in(failure.text)
    return _function_failed(error, failure.records) if error and error.place else None


def _function_failed(error: spark_text.PythonError, records: str = "") -> FunctionFailed:
    # A frame of the foreach sink, ours or Spark's own.
    sinks = [each for each in error.frames if each.file.endswith(_FOREACH_FILE) or each.function in _SPARK_FOREACH]
    kind = errors.SinkFailed if sinks else FunctionFailed
    frame = error.user_frame
    named = frame is not None and not frame.function.startswith("<")
    return kind(
        f"{f'the function {frame.function}' if frame and named else 'a function'} raised {error}",
        why=f"in a batch of {records}" if records else None,
        place=error.place,
        hint="fix it and run again: the batch is repeated" if records else "fix it and run again",
        exception=error.kind,
    )


def _real_time_refused(failure: Failure) -> MillraceError | None:
    """What real-time mode refuses when a query starts; Spark's own advice is to disable the check."""
    match = _REFUSED_OPERATORS.search(failure.text)
    if match is None:
        return None
    operators = ", ".join(name.rpartition(".")[2] for name in match[1].split(", "))
    hint = "use another trigger; `millrace check --deep` names a table with a Python function"
    return InvalidQuery(f"Spark's real-time mode does not do {operators}", hint=hint)


def _analysis_failed(failure: Failure) -> MillraceError | None:
    from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException, StreamingQueryException

    error = failure.error
    if not isinstance(error, AnalysisException | IllegalArgumentException) and (
        "DATA_SOURCE_NOT_FOUND" not in failure.names
    ):
        # A call that PySpark itself refuses never reaches the JVM and has no Java cause.
        refused = isinstance(error, PySparkException) and not hasattr(error, "_origin")
        if not refused or isinstance(error, StreamingQueryException):
            return None
        return InvalidQuery(spark_text.plain_text(str(error)), place=spark_text.python_error_of(error).place)
    message, hint = _analysis_message(error)
    position = spark_text.sql_position(str(error))
    site = spark_text.call_site(error) or spark_text.python_error_of(error).place
    if position is None or site is not None:
        return InvalidQuery(message, hint=hint, place=site)
    why, place = f"at line {position[0]}, column {position[1]} of the SQL", failure.place
    if place and place.line:  # of the file that contains the SQL
        place = SourceLocation(place.file, place.line + position[0] - 1)
    return InvalidQuery(message, hint=hint, why=why, place=place)


def _analysis_message(error: BaseException) -> tuple[str, str | None]:
    """Return message and hint; for the most frequent mistakes in words of our own."""
    condition, parameters = "", {}
    with suppress(Exception):
        condition = error.getCondition() or ""  # type: ignore[attr-defined]
        parameters = dict(error.getMessageParameters() or {})  # type: ignore[attr-defined]
    if condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION":
        return f"there is no column {parameters['objectName']}", f"did you mean one of {parameters['proposal']}?"
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return f"there is no table {parameters['relationName']}", None
    if condition == "DATA_SOURCE_NOT_FOUND":
        return spark_text.root_cause(error), None
    return spark_text.plain_text(str(error)), None


def _query_failed(failure: Failure) -> MillraceError | None:
    """Any other failure of a running query."""
    if not hasattr(failure.error, "_origin") and not hasattr(failure.error, "java_exception"):
        return None
    where = f" in a batch of {failure.records}" if failure.records else ""
    hint = "fix the cause and run again: the query resumes where it stopped"
    place = spark_text.call_site(failure.error)
    return errors.QueryFailed(f"Spark failed{where}: {failure.root_cause}", place=place, hint=hint)


def _python_error(failure: Failure) -> MillraceError:
    """An exception of plain Python, usually out of the user's code."""
    return _function_failed(spark_text.python_error_of(failure.error))


_RULES: tuple[Callable[[Failure], MillraceError | None], ...] = (
    _transported,
    _jvm_ended,
    _store_failed,
    _disk_full,
    _offsets_gone,
    _checkpoint_incompatible,
    _kafka_failed,
    _function_in_text,
    _real_time_refused,
    _analysis_failed,
    _query_failed,
    _python_error,
)
