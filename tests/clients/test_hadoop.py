"""Files through Hadoop in Spark's JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.clients.hadoop import HadoopStore


def test_files_through_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    store, here = HadoopStore.of(spark), f"file://{tmp_path}"
    with pytest.raises(FileNotFoundError):
        store.read(f"{here}/no")
    store.write(f"{here}/a/b", b"one", new=True)
    with pytest.raises(FileExistsError):
        store.write(f"{here}/a/b", b"two", new=True)
    store.write(f"{here}/a/b", b"\x00\xff")
    assert store.read(f"{here}/a/b") == b"\x00\xff"
    assert [name for name in store.names(f"{here}/a") if not name.endswith(".crc")] == ["b"]
    assert (store.is_folder(f"{here}/a"), store.is_folder(f"{here}/a/b"), store.is_folder(f"{here}/c")) == (
        True,
        False,
        None,
    )
    assert store.remove(f"{here}/a")
    assert not store.remove(f"{here}/a")
    assert store.names(f"{here}/a") == []
