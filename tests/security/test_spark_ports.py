"""The ports of Spark's JVM: who cannot show that it belongs to it is not listened to."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RPC_REQUEST = 3


def answer(port: int, message: bytes) -> bytes:
    """What Spark's transport answers to a request; nothing when it closes the connection or waits for more."""
    head = struct.pack(">bqi", _RPC_REQUEST, 7, len(message))
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(struct.pack(">q", 8 + len(head) + len(message)) + head + message)
        size = int.from_bytes(connection.recv(8, socket.MSG_WAITALL))
        return connection.recv(size - 8, socket.MSG_WAITALL) if size else b""


def test_the_driver_reads_no_java_object_of_a_stranger(spark: SparkSession) -> None:
    """Without a secret it would read the object, and with it what runs when such an object is made."""
    message = b"\x00" + struct.pack(">H", 17) + b"endpoint-verifier" + b"no java object"
    said = answer(int(spark.conf.get("spark.driver.port")), message)  # type: ignore[arg-type]
    assert b"NettyRpcHandler" not in said
    assert b"SaslMessage" in said


def test_all_ports_are_on_the_loopback(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    listening = [one for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    assert listening
    assert {one.laddr.ip.removeprefix("::ffff:") for one in listening} == {"127.0.0.1"}
