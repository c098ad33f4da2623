"""The ports of Spark's JVM: who cannot show that it belongs to it is not listened to."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from conftest import CommandLine

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


PROGRAM = """
import sys
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
way = sys.argv[1]
if way == "positional":
    context = SparkContext("local[1]", "mine")
elif way == "conf":
    context = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("mine"))
elif way == "off":
    context = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("mine").set("spark.authenticate", "false"))
elif way == "cluster":
    context = SparkContext("local-cluster[1,1,1024]", "mine")
else:
    context = SparkSession.builder.getOrCreate().sparkContext
print("authenticate", context.getConf().get("spark.authenticate", "false"), context.parallelize([1, 2]).sum())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "wanted"),
    [("positional", "true"), ("conf", "true"), ("builder", "true"), ("off", "false"), ("cluster", "false")],
)
def test_programs_are_protected_where_spark_is_here(offline_millrace: CommandLine, way: str, wanted: str) -> None:
    """However a program names its master; a cluster's secret is the program's own matter."""
    (offline_millrace.folder / "program.py").write_text(PROGRAM, "utf-8")
    done = offline_millrace("exec", "--no-dashboard", "program.py", way)
    assert f"authenticate {wanted} 3" in done.stdout
