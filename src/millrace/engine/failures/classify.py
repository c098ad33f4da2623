"""Decide whether another attempt may succeed after a failure: a table of what goes wrong.

- An error of ours is classified by its condition.
- Other failures are classified by the names of exception classes, Spark conditions and Kafka error codes in their text,
  and only where a failure has no name of its own by phrases.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from millrace.errors import FunctionFailed, InputError, MillraceError, SinkFailed
from millrace.errors.spark_text import error_names


class FailureKind(StrEnum):
    """What to expect of another attempt."""

    TRANSIENT = "transient"
    """It may succeed: a system outside did not answer."""
    TERMINAL = "terminal"
    """It will fail in the same way, or would do harm."""
    UNKNOWN = "unknown"


class Classification(NamedTuple):
    """The kind of a failure, and why it is of that kind, in a few words."""

    kind: FailureKind
    why: str


class _ConditionRow(NamedTuple):
    kind: FailureKind
    why: str
    conditions: str
    """A regular expression of conditions of ours."""
    phrases: str = ""
    """A regular expression that has to occur in the text as well."""


class _TextRow(NamedTuple):
    kind: FailureKind
    why: str
    names: str = ""
    """Error names as `error_names` returns them, separated by blanks."""
    phrases: str = ""
    """A regular expression for failures that have no such name."""


KAFKA_UNREACHABLE = (
    r"waiting for a node assignment|No resolvable bootstrap|Failed to (?:create|construct) \w*[kK]afka"
    r"|org\.apache\.kafka\S*(?:Timeout|Disconnect|Network)Exception|not present in metadata|Failed to update metadata"
    r"|TimeoutException: (?:Call\(|Timeout of \d+ ?ms expired before)|BrokerNotAvailable|Expiring \d+ record"
    r"|after polling for"
)
"""What Java's Kafka clients say when no broker answers; most of it in classes that other systems use as well."""
_TRANSIENT, _TERMINAL, _UNKNOWN = FailureKind.TRANSIENT, FailureKind.TERMINAL, FailureKind.UNKNOWN
_RAISED = re.compile(r"\braised ([\w.]+)")
_LIKE_UNREACHABLE = re.compile(
    r"(?i)connect|time(?:d_?)?out|unavailable|brokenpipe|network|unreachable|nohost|operationalerror|temporar|gaierror"
    r"|disconnected|incompleteread|toomanyrequests|protocolerror"
)
"""Exception classes of any library whose names say that a system does not answer."""

_CONDITIONS = (
    _ConditionRow(_TRANSIENT, "Kafka does not answer", r"kafka\.(?:unreachable|not-delivered|commit-unknown)"),
    _ConditionRow(_TRANSIENT, "Cassandra does not answer", r"cassandra\.(?:unreachable|timeout|away)"),
    _ConditionRow(_TRANSIENT, "Kinesis does not answer, or has no capacity", r"kinesis\.(?:unreachable|failed)"),
    _ConditionRow(_TRANSIENT, "the schema registry does not answer", r"registry\.unreachable"),
    _ConditionRow(_TRANSIENT, "no space is left on the disk", r"disk\.full"),
    _ConditionRow(_TERMINAL, "records that were not read yet are gone", r"kafka\.offsets-gone|kinesis\.records-gone"),
    _ConditionRow(_TERMINAL, "a record cannot be decoded, and the source says on_bad: fail", r"record\.bad"),
    _ConditionRow(
        _TERMINAL, "a record is refused, however often it is sent", r".*\.(?:record|row)-refused|registry\.refused"
    ),
    # A killed task may end after its successor has begun; whether another run took over is checked before each start.
    _ConditionRow(_UNKNOWN, "another producer has written in its name", r"kafka\.taken-over"),
    _ConditionRow(_TERMINAL, "Spark itself has ended", r"spark\.failed"),
    # A broker that stops in the middle of a handshake looks like one that refuses it.
    _ConditionRow(
        _UNKNOWN,
        "a connection was lost while it was opened",
        r".*\.access-denied",
        r"(?i)disconnect|closed|reset|timed out",
    ),
    _ConditionRow(_UNKNOWN, "a topic does not exist", r"kafka\.topic-(?:unknown|gone)"),
)
"""Errors of ours: the first row that matches counts."""

_TEXTS = (
    _TextRow(
        _TERMINAL,
        "another copy of this pipeline has taken over",
        "ProducerFenced FENCED _FENCED PRODUCER_FENCED CONCURRENT_STREAM_LOG_UPDATE CONCURRENT_QUERY",
        r"fenced by a newer instance|has taken over|Multiple streaming (?:jobs|queries)",
    ),
    _TextRow(
        _TERMINAL,
        "the credentials are refused",
        "Authentication SaslAuthentication SslAuthentication AuthenticationFailed Authorization TopicAuthorization"
        " GroupAuthorization ClusterAuthorization TransactionalIdAuthorization",
        r"Unauthorized\b",
    ),
    _TextRow(_TERMINAL, "a record is refused, however often it is sent", "RecordTooLarge InvalidRecord"),
    # Classes of the SQL standard: data that does not fit, and statements that are not understood or not allowed.
    _TextRow(
        _TERMINAL, "the rows do not fit the SQL, and would not another time", phrases=r"SQLSTATE: (?:22|42|0A)\w{3}"
    ),
    _TextRow(
        _TRANSIENT,
        "a partition's leader is moving",
        "NotLeaderOrFollower NotLeaderForPartition LeaderNotAvailable FencedLeaderEpoch UnknownLeaderEpoch"
        " NotEnoughReplicas NotEnoughReplicasAfterAppend ReplicaNotAvailable OffsetNotAvailable KafkaStorage"
        " NOT_LEADER_FOR_PARTITION NOT_LEADER_OR_FOLLOWER LEADER_NOT_AVAILABLE",
    ),
    _TextRow(
        _TRANSIENT,
        "a coordinator of Kafka's is moving or loading",
        "CoordinatorLoadInProgress CoordinatorNotAvailable NotCoordinator ConcurrentTransactions"
        " COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR CONCURRENT_TRANSACTIONS",
    ),
    _TextRow(
        _TRANSIENT,
        "Cassandra does not answer",
        "NoHostAvailable OperationTimedOut AllNodesFailed WriteTimeout ReadTimeout Unavailable",
        r"cassandra\.(?:Unavailable|Timeout)",
    ),
    _TextRow(
        _TRANSIENT,
        "Kafka does not answer",
        "_ALL_BROKERS_DOWN _TRANSPORT _MSG_TIMED_OUT REQUEST_TIMED_OUT",
        KAFKA_UNREACHABLE,
    ),
    # S3 and HDFS; a status 403 is no row here.
    _TextRow(
        _TRANSIENT,
        "the store does not answer, or has too much to do",
        "AWSServiceThrottled AWSNoResponse AWSApiCallTimeout SlowDown ServiceUnavailable RequestTimeout SafeMode"
        " Standby NoNamenodesAvailable",
        r"Status Code: (?:5\d\d|429)|AWSStatus5\d\dException|Slow Down|reduce your request rate|Service Unavailable"
        r"|Unable to execute HTTP request",
    ),
    _TextRow(
        _TRANSIENT,
        "a connection was lost",
        "Socket ClosedChannel SocketTimeout NoRouteToHost UnknownHost EOF Py4JNetwork ConnectionReset ConnectionRefused"
        " ConnectionAborted BrokenPipe",
        r"Connection (?:reset|refused|aborted|closed)|Broken pipe|Remote host terminated"
        r"|(?:Socket|ClosedChannel)Exception|SocketTimeout|NoRouteToHost",
    ),
    _TextRow(_TRANSIENT, "an answer did not come in time", "Timeout", r"[Tt]imed out|Timeout(?:Exception|Error)"),
    _TextRow(_TRANSIENT, "an executor was lost", "ExecutorLostFailure FetchFailed", r"Executor heartbeat"),
    _TextRow(
        _UNKNOWN,
        "a Python worker has died",
        phrases=r"Python worker exited unexpectedly|Python worker failed to connect",
    ),
)
"""Any other failure of a query: the first row that matches counts."""


def classify(error: MillraceError, text: str = "") -> Classification:
    """Return what to expect of another attempt; `text` is the full text of Spark's exception."""
    text = f"{text}\n{error.message}\n{error.why or ''}"
    for condition in _CONDITIONS:
        if re.fullmatch(condition.conditions, error.condition) and re.search(condition.phrases, text):
            return Classification(condition.kind, condition.why)
    if isinstance(error, FunctionFailed):
        return _classify_function(error)
    if isinstance(error, InputError):
        return Classification(_TERMINAL, error.message)
    names = error_names(text)
    for row in _TEXTS:
        if not names.isdisjoint(row.names.split()) or (row.phrases and re.search(row.phrases, text)):
            return Classification(row.kind, row.why)
    return Classification(_UNKNOWN, error.message)


def _classify_function(error: FunctionFailed) -> Classification:
    """Classify what a function of the user's raised: one that computes raises again on the same rows."""
    raised = _RAISED.search(error.message)
    if _LIKE_UNREACHABLE.search(error.exception or (raised[1] if raised else "")):
        return Classification(_TRANSIENT, error.message)
    return Classification(_UNKNOWN if isinstance(error, SinkFailed) else _TERMINAL, error.message)
