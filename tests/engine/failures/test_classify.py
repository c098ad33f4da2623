"""Which failures pass by themselves, and which do not."""

from __future__ import annotations

import pytest

from millrace import errors
from millrace.engine.failures.classify import Kind, judge
from millrace.errors import MillraceError, QueryFailed

SPARK = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: "


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.KafkaUnreachable("no broker answers"), Kind.TRANSIENT),
        (errors.NotDelivered("3 records were not taken"), Kind.TRANSIENT),
        (errors.CommitUnknown("the commit was not answered"), Kind.TRANSIENT),
        (errors.RegistryUnreachable("the registry is away"), Kind.TRANSIENT),
        (errors.DiskFull("no space is left"), Kind.TRANSIENT),
        (errors.KafkaFailed("it failed", why="NOT_COORDINATOR: Broker: Not coordinator"), Kind.TRANSIENT),
        (errors.SinkFailed("the function save raised ConnectionResetError: [Errno 104]"), Kind.TRANSIENT),
        (errors.SinkFailed("the function save raised ReadTimeout"), Kind.TRANSIENT),
        (errors.FunctionFailed("the function look_up raised ConnectTimeout: it took too long"), Kind.TRANSIENT),
        (errors.FunctionFailed("the function number raised ValueError: Connection reset"), Kind.TERMINAL),
        (errors.OffsetsGone("offsets 5 to 7 are gone"), Kind.TERMINAL),
        (errors.BadRecord("a record cannot be decoded"), Kind.TERMINAL),
        (errors.RecordRefused("it is too large"), Kind.TERMINAL),
        (errors.RegistryRefused("the schema does not fit"), Kind.TERMINAL),
        (errors.CheckpointIncompatible("the query was changed"), Kind.TERMINAL),
        (errors.StateMismatch("another run uses the folder"), Kind.TERMINAL),
        (errors.InvalidQuery("there is no column x"), Kind.TERMINAL),
        (errors.AccessDenied("Kafka refuses us"), Kind.TERMINAL),
        (errors.AccessDenied("Kafka refuses us", why="SSL handshake failed: Disconnected"), Kind.UNKNOWN),
        (errors.SparkFailed("Spark's JVM has ended"), Kind.TERMINAL),
        (errors.SinkFailed("the function save raised RuntimeError: not now"), Kind.UNKNOWN),
        (errors.UnknownTopic("there is no topic 't'"), Kind.UNKNOWN),
        (errors.QueryFailed("Spark failed: something that nobody has seen"), Kind.UNKNOWN),
    ],
)
def test_errors_of_ours(error: MillraceError, kind: Kind) -> None:
    found = judge(error)
    assert found.kind is kind
    assert found.why


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("Timed out waiting for a node assignment. Call: listOffsets", Kind.TRANSIENT, "Kafka does not answer"),
        ("org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s)", Kind.TRANSIENT, "Kafka"),
        ("java.util.concurrent.TimeoutException: Cannot fetch record for offset", Kind.TRANSIENT, "in time"),
        ("org.apache.kafka.common.errors.NotLeaderOrFollowerException: For requests", Kind.TRANSIENT, "leader"),
        ("org.apache.kafka.common.errors.CoordinatorLoadInProgressException", Kind.TRANSIENT, "coordinator"),
        ("py4j.Py4JException: java.net.SocketException: Connection reset", Kind.TRANSIENT, "connection"),
        ("Please reduce your request rate. (Service: S3, Status Code: 503, Request ID: 1)", Kind.TRANSIENT, "store"),
        ("org.apache.hadoop.fs.s3a.AWSServiceThrottledException: on s3a://b/x", Kind.TRANSIENT, "store"),
        ("Access Denied (Service: S3, Status Code: 403, Request ID: 1)", Kind.UNKNOWN, ""),
        ("cassandra.cluster.NoHostAvailable: ('Unable to connect to any servers'", Kind.TRANSIENT, "Cassandra"),
        ("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018", Kind.TERMINAL, "fit the SQL"),
        ("[UNRESOLVED_COLUMN] A column. SQLSTATE: 42703", Kind.TERMINAL, "fit the SQL"),
        ("org.apache.kafka.common.errors.RecordTooLargeException: The message is", Kind.TERMINAL, "refused"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: failed", Kind.TERMINAL, "credentials"),
        ("org.apache.kafka.common.errors.ProducerFencedException: newer producer", Kind.TERMINAL, "taken over"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", Kind.TERMINAL, "taken over"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", Kind.UNKNOWN, "worker"),
    ],
)
def test_what_spark_says(text: str, kind: Kind, why: str) -> None:
    found = judge(QueryFailed("Spark failed"), SPARK + text)
    assert found.kind is kind
    assert why in found.why


def test_a_connection_reset_out_of_a_batchs_function() -> None:
    """It was seen once that Py4J lost a connection in the middle of a batch."""
    assert judge(QueryFailed("Spark failed: Connection reset")).kind is Kind.TRANSIENT
