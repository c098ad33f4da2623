"""Make Hadoop write files on the local disk faster, for the test kit: no `chmod` process and no checksum file for each.

It replaces a private field of Hadoop's local file system (written for Hadoop 3.4, as in Spark 4).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = "millrace.PermissionsInTheJvm"
_SOURCE = """
package millrace;

public class PermissionsInTheJvm extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(
        org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission
    ) throws java.io.IOException {
        java.nio.file.Path own = pathToFile(path).toPath();
        Object mode = java.nio.file.Files.getAttribute(own, "unix:mode", new java.nio.file.LinkOption[0]);
        if (permission.getStickyBit() || (((Integer) mode).intValue() & 07000) != 0) {
            super.setPermission(path, permission);
        } else {
            java.nio.file.Files.setPosixFilePermissions(
                own,
                java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString())
            );
        }
    }
}
"""


def set_in_the_jvm(spark: SparkSession) -> None:
    """Have Hadoop's local file system set permissions itself.

    A small batch writes up to a dozen files, and a program for each takes as long as the rest of it. Where it cannot be
    done, as in another Hadoop, all stays as it was, and is slower. It is for tests of pipelines: with it, a query whose
    batches follow each other without a pause could not always be stopped between two of them.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm
    with suppress(Py4JError, TypeError):  # the latter for a class that is not there
        own = _made(spark)
        own.initialize(_here(spark), spark._jsc.hadoopConfiguration())
        raw = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
        raw.setAccessible(True)
        raw.set(_local(spark), own)


def write_no_checksums(spark: SparkSession) -> None:
    """Have Hadoop write no second file beside each that it writes here: for what is gone after a test."""
    _local(spark).setWriteChecksum(False)


def _local(spark: SparkSession) -> Any:
    """Hadoop's local file system, the same for everybody in the JVM."""
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.get(_here(spark), spark._jsc.hadoopConfiguration())


def _here(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.java.net.URI("file:///")


def _made(spark: SparkSession) -> Any:
    """The file system, compiled by the compiler that Spark has for its own code."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    gateway: Any = spark.sparkContext._gateway
    constructor = compiler.getClassLoader().loadClass(_NAME).getDeclaredConstructor(gateway.new_array(jvm.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.Object, 0))
