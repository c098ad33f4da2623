"""Which failures pass by themselves, and which do not."""

from __future__ import annotations

import pytest

from millrace import errors
from millrace.engine.failures.classify import FailureKind, classify
from millrace.errors import MillraceError, QueryFailed

SPARK = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: "


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.KafkaUnreachable("no broker answers"), FailureKind.TRANSIENT),
        (errors.NotDelivered("3 records were not taken"), FailureKind.TRANSIENT),
        (errors.CommitUnknown("the commit was not answered"), FailureKind.TRANSIENT),
        (errors.RegistryUnreachable("the registry is away"), FailureKind.TRANSIENT),
        (errors.DiskFull("no space is left"), FailureKind.TRANSIENT),
        (errors.KafkaFailed("it failed", why="NOT_COORDINATOR: Broker: Not coordinator"), FailureKind.TRANSIENT),
        (
            errors.SinkFailed(
                "the function save raised ConnectionResetError: [Errno 104]", exception="ConnectionResetError"
            ),
            FailureKind.TRANSIENT,
        ),
        (errors.SinkFailed("a function raised", exception="ReadTimeout"), FailureKind.TRANSIENT),
        (
            errors.FunctionFailed(
                "the function look_up raised ConnectTimeout: it took too long", exception="ConnectTimeout"
            ),
            FailureKind.TRANSIENT,
        ),
        (
            errors.FunctionFailed("the function number raised ValueError: Connection reset", exception="ValueError"),
            FailureKind.TERMINAL,
        ),
        (errors.OffsetsGone("offsets 5 to 7 are gone"), FailureKind.TERMINAL),
        (errors.BadRecord("a record cannot be decoded"), FailureKind.TERMINAL),
        (errors.RecordRefused("it is too large"), FailureKind.TERMINAL),
        (errors.RegistryRefused("the schema does not fit"), FailureKind.TERMINAL),
        (errors.CheckpointIncompatible("the query was changed"), FailureKind.TERMINAL),
        (errors.StateMismatch("another run uses the folder"), FailureKind.TERMINAL),
        (errors.InvalidQuery("there is no column x"), FailureKind.TERMINAL),
        (errors.AccessDenied("Kafka refuses us"), FailureKind.TERMINAL),
        (errors.AccessDenied("Kafka refuses us", why="SSL handshake failed: Disconnected"), FailureKind.UNKNOWN),
        (errors.SparkFailed("Spark's JVM has ended"), FailureKind.TERMINAL),
        (
            errors.SinkFailed("the function save raised RuntimeError: not now", exception="RuntimeError"),
            FailureKind.UNKNOWN,
        ),
        (errors.UnknownTopic("there is no topic 't'"), FailureKind.UNKNOWN),
        (errors.QueryFailed("Spark failed: something that nobody has seen"), FailureKind.UNKNOWN),
    ],
)
def test_errors_of_ours(error: MillraceError, kind: FailureKind) -> None:
    found = classify(error)
    assert found.kind is kind
    assert found.why


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("Timed out waiting for a node assignment. Call: listOffsets", FailureKind.TRANSIENT, "Kafka does not answer"),
        ("org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s)", FailureKind.TRANSIENT, "Kafka"),
        ("java.util.concurrent.TimeoutException: Cannot fetch record for offset", FailureKind.TRANSIENT, "in time"),
        ("org.apache.kafka.common.errors.NotLeaderOrFollowerException: For requests", FailureKind.TRANSIENT, "leader"),
        ("org.apache.kafka.common.errors.CoordinatorLoadInProgressException", FailureKind.TRANSIENT, "coordinator"),
        ("py4j.Py4JException: java.net.SocketException: Connection reset", FailureKind.TRANSIENT, "connection"),
        ("io.netty.channel.StacklessClosedChannelException", FailureKind.TRANSIENT, "connection"),
        ("io.netty.channel.AbstractChannel$AnnotatedSocketException: x", FailureKind.TRANSIENT, "connection"),
        ("org.apache.hadoop.net.ConnectTimeoutException: 20000 millis", FailureKind.TRANSIENT, "in time"),
        ("software.amazon.awssdk.core.exception.ApiCallTimeoutException: x", FailureKind.TRANSIENT, "in time"),
        (
            "Please reduce your request rate. (Service: S3, Status Code: 503, Request ID: 1)",
            FailureKind.TRANSIENT,
            "store",
        ),
        ("org.apache.hadoop.fs.s3a.AWSServiceThrottledException: on s3a://b/x", FailureKind.TRANSIENT, "store"),
        ("Access Denied (Service: S3, Status Code: 403, Request ID: 1)", FailureKind.UNKNOWN, ""),
        ("cassandra.cluster.NoHostAvailable: ('Unable to connect to any servers'", FailureKind.TRANSIENT, "Cassandra"),
        ("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018", FailureKind.TERMINAL, "fit the SQL"),
        ("[UNRESOLVED_COLUMN] A column. SQLSTATE: 42703", FailureKind.TERMINAL, "fit the SQL"),
        ("org.apache.kafka.common.errors.RecordTooLargeException: The message is", FailureKind.TERMINAL, "refused"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: failed", FailureKind.TERMINAL, "credentials"),
        ("org.apache.kafka.common.errors.ProducerFencedException: newer producer", FailureKind.TERMINAL, "taken over"),
        ("librdkafka: _ALL_BROKERS_DOWN: 1/1 brokers are down", FailureKind.TRANSIENT, "Kafka does not answer"),
        ("java.io.EOFException: null", FailureKind.TRANSIENT, "connection"),
        ("concurrent.futures._base.TimeoutError", FailureKind.TRANSIENT, "in time"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", FailureKind.TERMINAL, "taken over"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", FailureKind.UNKNOWN, "worker"),
    ],
)
def test_what_spark_says(text: str, kind: FailureKind, why: str) -> None:
    found = classify(QueryFailed("Spark failed"), SPARK + text)
    assert found.kind is kind
    assert why in found.why


def test_a_connection_reset_out_of_a_batchs_function() -> None:
    """It was seen once that Py4J lost a connection in the middle of a batch."""
    assert classify(QueryFailed("Spark failed: Connection reset")).kind is FailureKind.TRANSIENT
