"""Files that Spark writes here get their permissions from the JVM: Hadoop would start `chmod` for each of them."""

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
        if (permission.getStickyBit()) {
            super.setPermission(path, permission);
        } else {
            java.nio.file.Files.setPosixFilePermissions(
                pathToFile(path).toPath(),
                java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString())
            );
        }
    }
}
"""


def set_in_the_jvm(spark: SparkSession) -> None:
    """Have Hadoop's one local file system set permissions itself, and write no checksums beside files.

    A batch of a test writes up to a dozen files, and a program for each took as long as the batch. Where it cannot be
    done, as in another Hadoop, all stays as it was, and is slower.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm
    settings: Any = spark._jsc.hadoopConfiguration()
    with suppress(Py4JError):
        here = jvm.java.net.URI("file:///")
        local = jvm.org.apache.hadoop.fs.FileSystem.get(here, settings)  # the same for everybody in this JVM
        local.setWriteChecksum(False)
        own = _made(spark)
        own.initialize(here, settings)
        raw = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
        raw.setAccessible(True)
        raw.set(local, own)


def _made(spark: SparkSession) -> Any:
    """The file system, compiled by the compiler that Spark has for its own code."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    gateway: Any = spark.sparkContext._gateway
    constructor = compiler.getClassLoader().loadClass(_NAME).getDeclaredConstructor(gateway.new_array(jvm.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.Object, 0))
