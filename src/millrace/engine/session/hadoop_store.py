"""Stores as Spark reaches them, through Hadoop in its JVM: with the same settings, keys and rights.

Files that Spark writes here get their permissions from the JVM: Hadoop would start `chmod` for each of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from millrace.errors.spark_text import java_causes
from millrace.object_stores import Store, StoreFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONLY_IF_NEW = "fs.option.create.conditional.overwrite"
"""Of S3: the store itself refuses a second one, not a look before."""
_WHOLE = ("s3a",)
"""Where a file is there when it is closed, in one step, and where a rename is a copy and so no better."""


class Hadoop(Store):
    """Every store that Hadoop has a file system for."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._settings: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def read(self, url: str) -> bytes:
        """All of a file."""
        with _spoken(url):
            system, path = self._at(url)
            stream = system.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, url: str, content: bytes, *, new: bool = False) -> None:
        """A file: S3 shows it when all of it is there; others would show a part, so it gets its name at the end.

        One that must be new is made under its own name at once, since that is the step which only one can do: its
        readers must bear with an empty one.
        """
        with _spoken(url, new=new):
            system, path = self._at(url)
            if new or system.getScheme() in _WHOLE:
                self._create(system, path, content, new=new)
                return
            draft = self._path(f"{url.rpartition('/')[0]}/.{path.getName()}.{uuid.uuid4().hex}.draft")
            self._create(system, draft, content, new=False)
            # The one with options replaces in one step what is there.
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(draft.toUri(), self._settings)
            context.rename(draft, path, self._renaming())

    def names(self, url: str) -> list[str]:
        """What is in a folder."""
        try:
            with _spoken(url):
                system, path = self._at(url)
                return [str(one.getPath().getName()) for one in system.listStatus(path)]
        except FileNotFoundError:
            return []

    def is_folder(self, url: str) -> bool | None:
        """Whether it is a folder."""
        try:
            with _spoken(url):
                system, path = self._at(url)
                return bool(system.getFileStatus(path).isDirectory())
        except FileNotFoundError:
            return None

    def remove(self, url: str) -> bool:
        """Remove it, with all that is in it."""
        with _spoken(url):
            system, path = self._at(url)
            return bool(system.delete(path, True))

    def _create(self, system: Any, path: Any, content: bytes, *, new: bool) -> None:
        builder = system.createFile(path).recursive().overwrite(not new)
        if new:
            builder = builder.opt(_ONLY_IF_NEW, True)
        stream = builder.build()
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def _at(self, url: str) -> tuple[Any, Any]:
        path = self._path(url)
        return path.getFileSystem(self._settings), path

    def _path(self, url: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(url)

    def _renaming(self) -> Any:
        # A gateway has no syntax for variable arguments: an array of one.
        kind = self._jvm.org.apache.hadoop.fs.Options.Rename
        made = self._jvm.java.lang.reflect.Array.newInstance(kind.OVERWRITE.getClass(), 1)
        self._jvm.java.lang.reflect.Array.set(made, 0, kind.OVERWRITE)
        return made


@contextmanager
def _spoken(url: str, *, new: bool = False) -> Iterator[None]:
    """Java's errors as Python's; `new`: whether a file is made that must not be there."""
    from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JNetworkError as error:
        raise StoreFailed(0, "Spark's JVM does not answer", url) from error
    except Py4JJavaError as error:
        causes = java_causes(error)
        kinds = [cause.simple_kind for cause in causes]
        if kinds and kinds[0] == "FileNotFoundException":
            raise FileNotFoundError(url) from None
        if "FileAlreadyExistsException" in kinds or (new and "RemoteFileChangedException" in kinds):
            raise FileExistsError(url) from None
        raise StoreFailed(0, _said(kinds[-1], causes[-1].message) if causes else str(error), url) from error


def _said(kind: str, message: str) -> str:
    """What went wrong; some say no more than a name, of a host that is not known."""
    first = message.partition("\n")[0].strip()
    return first if " " in first else f"{kind}: {first}".rstrip(": ")


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
    from py4j.protocol import Py4JError

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
