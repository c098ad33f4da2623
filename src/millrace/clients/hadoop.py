"""Files on a store (s3a://, hdfs://, ...) through Hadoop in Spark's JVM, with the same settings, keys and rights.

A file appears whole or not at all: on S3 because an object is visible only when its upload has ended, elsewhere by an
atomic rename.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millrace.errors.spark_text import java_causes
from millrace.object_stores import Store, StoreFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CREATE_IF_ABSENT = "fs.option.create.conditional.overwrite"
"""An option for S3: the store itself refuses a second writer; without it, Hadoop only looks before it writes."""
_ATOMIC_UPLOAD_SCHEMES = ("s3a",)
"""Where a file appears in one step when it is closed, and where a rename is a copy."""


class HadoopStore(Store):
    """Every store that Hadoop has a file system for."""

    def __init__(self, jvm: Any, configuration: Any) -> None:
        self._jvm, self._configuration = jvm, configuration

    @classmethod
    def of(cls, spark: SparkSession) -> HadoopStore:
        """Return the stores that a Spark session can reach."""
        context: Any = spark.sparkContext
        return cls(spark._jvm, context._jsc.hadoopConfiguration())

    def read(self, url: str) -> bytes:
        with _java_errors_as_python(url):
            system, path = self._at(url)
            stream = system.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, url: str, content: bytes, *, new: bool = False) -> None:
        """Write a file: under a temporary name and then renamed, where a reader could see a part of it otherwise.

        A file that must be new is created under its own name, the only step that just one process can do: its readers
        have to expect an empty file.
        """
        with _java_errors_as_python(url, new=new):
            system, path = self._at(url)
            if new or system.getScheme() in _ATOMIC_UPLOAD_SCHEMES:
                self._create(system, path, content, new=new)
                return
            draft = self._path(f"{url.rpartition('/')[0]}/.{path.getName()}.{uuid.uuid4().hex}.draft")
            self._create(system, draft, content, new=False, sync=True)
            # FileContext's rename replaces an existing file in one step; FileSystem's does not.
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(draft.toUri(), self._configuration)
            # Py4J has no variable arguments: an array with one element.
            overwrite = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
            arrays = self._jvm.java.lang.reflect.Array
            options = arrays.newInstance(overwrite.getClass(), 1)
            arrays.set(options, 0, overwrite)
            context.rename(draft, path, options)

    def names(self, url: str) -> list[str]:
        try:
            with _java_errors_as_python(url):
                system, path = self._at(url)
                return [str(status.getPath().getName()) for status in system.listStatus(path)]
        except FileNotFoundError:
            return []

    def is_folder(self, url: str) -> bool | None:
        try:
            with _java_errors_as_python(url):
                system, path = self._at(url)
                return bool(system.getFileStatus(path).isDirectory())
        except FileNotFoundError:
            return None

    def remove(self, url: str) -> bool:
        with _java_errors_as_python(url):
            system, path = self._at(url)
            return bool(system.delete(path, True))

    def _create(self, system: Any, path: Any, content: bytes, *, new: bool, sync: bool = False) -> None:
        builder = system.createFile(path).recursive().overwrite(not new)
        if new:
            builder = builder.opt(_CREATE_IF_ABSENT, True)
        stream = builder.build()
        try:
            stream.write(bytearray(content))
            if sync:
                stream.hsync()
        finally:
            stream.close()

    def _at(self, url: str) -> tuple[Any, Any]:
        path = self._path(url)
        return path.getFileSystem(self._configuration), path

    def _path(self, url: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(url)


@contextmanager
def _java_errors_as_python(url: str, *, new: bool = False) -> Iterator[None]:
    """Raise Java's errors as Python's; `new`: the file that is created must not exist."""
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
        reason = _reason(kinds[-1], causes[-1].message) if causes else str(error)
        raise StoreFailed(0, reason, url) from error


def _reason(kind: str, message: str) -> str:
    """Return the first line of a message, with its class where the message is only a name, as of an unknown host."""
    first = message.partition("\n")[0].strip()
    return first if " " in first else f"{kind}: {first}".rstrip(": ")
