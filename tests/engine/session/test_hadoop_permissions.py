"""Permissions of Spark's files without a program for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.engine.session.hadoop_permissions import set_in_the_jvm, write_no_checksums


@pytest.fixture
def local(spark: SparkSession) -> Iterator[Any]:
    """Hadoop's local file system as the test kit has it; as it was, afterwards."""
    jvm: Any = spark._jvm
    settings: Any = spark._jsc.hadoopConfiguration()
    found = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), settings)
    raw = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
    raw.setAccessible(True)
    before = raw.get(found)
    set_in_the_jvm(spark)
    write_no_checksums(spark)
    yield found
    raw.set(found, before)
    found.setWriteChecksum(True)


def test_files_and_folders_have_the_permissions_they_would_have(
    spark: SparkSession, local: Any, tmp_path: Path
) -> None:
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    assert local.getRawFileSystem().getClass().getName() == "millrace.PermissionsInTheJvm"
    folder, file = tmp_path / "folder", tmp_path / "folder" / "file"
    local.mkdirs(hadoop.Path(str(folder)), hadoop.permission.FsPermission("750"))
    local.create(hadoop.Path(str(file))).close()
    local.setPermission(hadoop.Path(str(file)), hadoop.permission.FsPermission("640"))
    assert [one.stat().st_mode & 0o7777 for one in (folder, file)] == [0o750, 0o640]
    local.setPermission(hadoop.Path(str(folder)), hadoop.permission.FsPermission("1777"))
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert [one.name for one in folder.iterdir()] == ["file"]
