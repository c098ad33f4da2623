"""State, sources and sinks on S3: a real server on this machine, a real run, and another that goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from bucket import BUCKET, KEYS, Bucket
from conftest import CommandLine

_PATIENCE = 120.0
QUICK = ("--no-dashboard", "--master", "local[1]", "--set", "spark.sql.codegen.wholeStage=false")
PIPELINE = """
name: words
sources:
  lines: {files: "s3a://runs/in", schema: "id int, word string", on_bad: fail}
tables:
  longer: SELECT id, upper(word) AS word FROM lines WHERE length(word) > 3
sinks:
  - {from: longer, files: "s3a://runs/out"}
"""


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    service = Bucket()
    yield service
    service.stop()


def arguments(folder: Path, bucket: Bucket) -> tuple[str, ...]:
    (folder / "words.yaml").write_text(PIPELINE)
    given = [word for key, value in bucket.settings.items() for word in ("--set", f"{key}={value}")]
    return ("run", "words.yaml", "--state", f"s3a://{BUCKET}/state", "--until-caught-up", *QUICK, *given)


def rows(bucket: Bucket) -> list[tuple[int, str]]:
    """What is committed in the folder: what Spark's log of it names."""
    host = bucket.endpoint.removeprefix("http://")
    store = fs.S3FileSystem(access_key=KEYS[0], secret_key=KEYS[1], endpoint_override=host, scheme="http")
    found: list[tuple[int, str]] = []
    for key in (one for one in bucket.keys("out/_spark_metadata/") if one.rpartition("/")[2].isdecimal()):
        _, *entries = bucket.client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode().splitlines()
        for entry in entries:
            path = json.loads(entry)["path"].removeprefix("s3a://")
            found += [(row["id"], row["word"]) for row in pq.read_table(path, filesystem=store).to_pylist()]
    return sorted(found)


@pytest.mark.long
def test_a_run_with_all_it_has_on_s3_and_another_that_goes_on(offline_millrace: CommandLine, bucket: Bucket) -> None:
    line = arguments(offline_millrace.folder, bucket)
    bucket.put("in/one.json", '{"id": 1, "word": "mill"}\n{"id": 2, "word": "a"}\n')
    offline_millrace(*line)
    assert rows(bucket) == [(1, "MILL")]
    assert "state/pipeline.json" in bucket.keys("state/")
    assert "state/checkpoints/longer/commits/0" in bucket.keys("state/")
    assert [key for key in bucket.keys("state/holders/") if key.endswith(".over")]  # nobody has to wait
    bucket.put("in/two.json", '{"id": 3, "word": "race"}\n')
    offline_millrace(*line)
    assert rows(bucket) == [(1, "MILL"), (3, "RACE")]
    (here,) = (offline_millrace.folder / ".millrace" / "pipelines").iterdir()
    assert (here / "spark.log").exists()
    assert not (here / "checkpoints").exists()


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_run_is_killed_and_another_takes_over(offline_millrace: CommandLine, bucket: Bucket) -> None:
    line = arguments(offline_millrace.folder, bucket)
    forever = tuple(word for word in line if word != "--until-caught-up")
    bucket.put("in/one.json", '{"id": 1, "word": "mill"}\n')
    process = offline_millrace.start(*forever)
    try:
        deadline = time.monotonic() + _PATIENCE
        while "state/checkpoints/longer/commits/0" not in bucket.keys("state/"):
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        refused = offline_millrace(*line, code=2)
        assert "another run uses the state folder" in refused.stderr
    finally:
        process.kill()
        process.communicate(timeout=60)
    bucket.put("in/two.json", '{"id": 3, "word": "race"}\n')
    told = offline_millrace(*line)
    assert "whether the run that used the state folder goes on" in told.stderr
    assert rows(bucket) == [(1, "MILL"), (3, "RACE")]
