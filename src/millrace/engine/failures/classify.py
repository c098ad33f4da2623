"""Whether a failure passes by itself: a table of what goes wrong, each with its reason in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from millrace.errors import InputError, MillraceError


class FailureKind(StrEnum):
    """What to expect of another attempt."""

    TRANSIENT = "transient"
    """It may work: something outside was away."""
    TERMINAL = "terminal"
    """It will fail in the same way, or would do harm."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Classification:
    """The kind of a failure, and why it is of that kind, in a few words."""

    kind: FailureKind
    why: str


@dataclass(frozen=True)
class _Row:
    """A condition of ours, or what the text says, or both: regular expressions."""

    kind: FailureKind
    why: str
    conditions: str = ""
    says: str = ""

    def holds(self, condition: str, text: str) -> bool:
        if self.conditions and not re.fullmatch(self.conditions, condition):
            return False
        return not self.says or re.search(self.says, text) is not None


KAFKA_AWAY = (
    r"waiting for a node assignment|No resolvable bootstrap|Failed to (?:create|construct) \w*[kK]afka"
    r"|org\.apache\.kafka\S*(?:Timeout|Disconnect|Network)Exception|not present in metadata|Failed to update metadata"
    r"|TimeoutException: (?:Call\(|Timeout of \d+ ?ms expired before)|BrokerNotAvailable|Expiring \d+ record"
    r"|after polling for"
)
"""What Java's clients say of a Kafka that does not answer."""
_STORE_AWAY = (
    r"Status Code: (?:5\d\d|429)|AWSStatus5\d\dException|AWSServiceThrottledException|AWSNoResponseException"
    r"|AWSApiCallTimeoutException|SlowDown|Slow Down|reduce your request rate|ServiceUnavailable|Service Unavailable"
    r"|Unable to execute HTTP request|RequestTimeout\b|SafeModeException|StandbyException|NoNamenodesAvailable"
)
"""What S3 and HDFS say when they are away, or have too much to do; not when they refuse somebody."""
_T, _X, _U = FailureKind.TRANSIENT, FailureKind.TERMINAL, FailureKind.UNKNOWN
_RAISED = re.compile(r"\braised ([\w.]+)")
_LIKE_AWAY = re.compile(
    r"(?i)connect|time(?:d_?)?out|unavailable|brokenpipe|network|unreachable|nohost|operationalerror|temporar|gaierror"
    r"|disconnected|incompleteread|toomanyrequests|protocolerror"
)

_CONDITIONS: tuple[_Row, ...] = (
    _Row(_T, "Kafka does not answer", conditions=r"kafka\.(?:unreachable|not-delivered|commit-unknown)"),
    _Row(_T, "Cassandra does not answer", conditions=r"cassandra\.(?:unreachable|timeout|away)"),
    _Row(_T, "Kinesis does not answer, or has no capacity", conditions=r"kinesis\.(?:unreachable|failed)"),
    _Row(_T, "the schema registry does not answer", conditions=r"registry\.unreachable"),
    _Row(_T, "no space is left on the disk", conditions=r"disk\.full"),
    _Row(_X, "records that were not read yet are gone", conditions=r"kafka\.offsets-gone|kinesis\.records-gone"),
    _Row(_X, "a record cannot be decoded, and the source says on_bad: fail", conditions=r"record\.bad"),
    _Row(
        _X, "a record is refused, however often it is sent", conditions=r".*\.(?:record|row)-refused|registry\.refused"
    ),
    # A task that was killed may come to its end after its successor has begun; of another run we ask before each start.
    _Row(_U, "somebody else has written in its name", conditions=r"kafka\.taken-over"),
    _Row(_X, "Spark itself has ended", conditions=r"spark\.failed"),
    # A broker that goes away in the middle of a handshake looks like one that refuses it.
    _Row(
        _U, "a connection was lost while it was opened", r".*\.access-denied", r"(?i)disconnect|closed|reset|timed out"
    ),
    _Row(_U, "a topic is not there", conditions=r"kafka\.topic-(?:unknown|gone)"),
)
"""By the condition of an error of ours: it was understood already."""

_TEXTS: tuple[_Row, ...] = (
    _Row(
        _X,
        "another copy of this pipeline has taken over",
        says=r"ProducerFenced|fenced by a newer instance|\b_?(?:PRODUCER_)?FENCED\b|has taken over"
        r"|CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|Multiple streaming (?:jobs|queries)",
    ),
    _Row(
        _X,
        "the credentials are refused",
        says=r"(?:Sasl|Ssl)?AuthenticationException|AuthorizationException|AuthenticationFailed|Unauthorized\b",
    ),
    _Row(_X, "a record is refused, however often it is sent", says=r"RecordTooLarge|InvalidRecordException"),
    # Classes of the SQL standard: data that does not fit, and statements that cannot be understood or are not allowed.
    _Row(_X, "the rows do not fit the SQL, and would not another time", says=r"SQLSTATE: (?:22|42|0A)\w{3}"),
    _Row(
        _T,
        "a partition's leader is moving",
        says=r"NotLeaderOrFollower|LeaderNotAvailable|NOT_LEADER|LEADER_NOT_AVAILABLE|(?:Fenced|Unknown)LeaderEpoch"
        r"|NotEnoughReplicas|ReplicaNotAvailable|OffsetNotAvailable|KafkaStorageException",
    ),
    _Row(
        _T,
        "a coordinator of Kafka's is moving or loading",
        says=r"CoordinatorLoadInProgress|CoordinatorNotAvailable|NotCoordinator|COORDINATOR_(?:LOAD|NOT_AVAILABLE)"
        r"|NOT_COORDINATOR|ConcurrentTransactions|CONCURRENT_TRANSACTIONS",
    ),
    _Row(
        _T,
        "Cassandra does not answer",
        says=r"NoHostAvailable|OperationTimedOut|AllNodesFailed|(?:Write|Read)Timeout(?:Exception)?\b|UnavailableException"
        r"|cassandra\.(?:Unavailable|Timeout)",
    ),
    _Row(
        _T,
        "Kafka does not answer",
        says=rf"{KAFKA_AWAY}|_ALL_BROKERS_DOWN|_TRANSPORT\b|_MSG_TIMED_OUT|REQUEST_TIMED_OUT",
    ),
    _Row(_T, "the store does not answer, or has too much to do", says=_STORE_AWAY),
    _Row(
        _T,
        "a connection was lost",
        says=r"Connection (?:reset|refused|aborted|closed)|Broken pipe|SocketException|ClosedChannelException"
        r"|SocketTimeout|NoRouteToHost|UnknownHostException|EOFException|Py4JNetworkError|Remote host terminated"
        r"|Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError",
    ),
    _Row(_T, "an answer did not come in time", says=r"TimeoutException|TimeoutError|[Tt]imed out"),
    _Row(_T, "an executor was lost", says=r"ExecutorLostFailure|FetchFailed|Executor heartbeat"),
    _Row(_U, "a Python worker has died", says=r"Python worker exited unexpectedly|Python worker failed to connect"),
)
"""By what a query says that has failed for any other reason: the first that holds."""


def classify(error: MillraceError, text: str = "") -> Classification:
    """What to expect of another attempt; `text` is all that Spark said of the failure."""
    spoken = f"{text}\n{error.message}\n{error.why or ''}"
    for row in _CONDITIONS:
        if row.holds(error.condition, spoken):
            return Classification(row.kind, row.why)
    if error.condition in ("function.failed", "sink.failed"):
        return _of_function(error)
    if isinstance(error, InputError):
        return Classification(_X, error.message)
    for row in _TEXTS:
        if row.holds(error.condition, spoken):
            return Classification(row.kind, row.why)
    return Classification(_U, error.message)


def _of_function(error: MillraceError) -> Classification:
    """A function of the user's: one that computes raises again on the same rows, one that writes may not."""
    kind = _RAISED.search(error.message)
    if kind and _LIKE_AWAY.search(kind[1]):
        return Classification(_T, error.message)
    return Classification(_U if error.condition == "sink.failed" else _X, error.message)
