"""`millrace submit`: what would be called, what is refused, and (in make chaos) a real one."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from cli.conftest import Run
from conftest import CommandLine
from millrace.cli.spark_submit import IN_IMAGE
from standalone import Standalone

PIPELINE = """
name: copy
sources:
  numbers: {rate: 10}
tables:
  even: SELECT value FROM numbers WHERE value % 2 = 0
sinks:
  - {from: even, files: OUT}
"""
STORE = ("--state", "s3a://runs/copy")
UPLOADS = "spark.kubernetes.file.upload.path=s3a://runs/uploads"


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A pipeline that needs no Kafka."""
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "copy.yaml"
    path.write_text(PIPELINE.replace("OUT", str(tmp_path / "out")))
    return str(path)


def told(run: Run, *line: str) -> tuple[list[str], dict[str, str]]:
    """The command that would be called, and its settings."""
    words = shlex.split(run("submit", "--dry-run", *line).out)
    if words[0].startswith("PYSPARK_DRIVER_PYTHON"):  # a driver on the cluster has another one
        assert words.pop(0) == f"PYSPARK_DRIVER_PYTHON={sys.executable}"
        assert option(words, "--deploy-mode") == "client"
    assert words[0].endswith("pyspark/bin/spark-submit")
    settings = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--conf")
    return words, settings


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_to_a_standalone_cluster_the_driver_stays_here(offline_run: Run, file: str) -> None:
    words, settings = told(offline_run, file, "--master", "spark://there:7077", "--", "--port", "4041")
    assert option(words, "--master") == "spark://there:7077"
    assert option(words, "--deploy-mode") == "client"
    assert "spark-sql-kafka-0-10" in option(words, "--jars")
    assert "hadoop-aws" not in option(words, "--jars")
    millrace, project = option(words, "--py-files").split(",")
    assert Path(millrace).is_file()
    assert Path(project).is_file()
    assert "spark.executor.memory" not in settings, "the cluster's own spark-defaults.conf may say it"
    assert settings["spark.speculation"] == "false"
    assert "spark.master" not in settings
    program = words[words.index("run") - 1 :]
    assert program[0].endswith("millrace/cli/submit_main.py")
    assert program[1:] == ["run", file, "--master", "spark://there:7077", "--port", "4041"]


def test_to_yarn_the_project_goes_along(offline_run: Run, file: str) -> None:
    given = ("--deploy-mode", "cluster", *STORE, "--set", "spark.executor.instances=3")
    words, settings = told(offline_run, file, "--master", "yarn", *given)
    assert option(words, "--deploy-mode") == "cluster"
    assert option(words, "--archives").endswith("whole.zip#project")
    sent = [*option(words, "--py-files").split(","), option(words, "--archives").partition("#")[0]]
    assert len({Path(one).name for one in sent}) == len(sent), "YARN refuses a second one of the same name"
    assert "hadoop-aws" in option(words, "--jars")
    assert settings["spark.executor.instances"] == "3"
    assert "spark.sql.shuffle.partitions" not in settings, "the driver knows its spark-defaults.conf too"
    assert words[words.index("run") :] == ["run", "project/copy.yaml", "--master", "yarn", *STORE]


def test_to_kubernetes_the_image_has_millrace(offline_run: Run, file: str) -> None:
    given = ("--deploy-mode", "cluster", "--image", "millrace:0.1.0", *STORE, "--set", UPLOADS)
    words, settings = told(offline_run, file, "--master", "k8s://https://there:6443", *given)
    assert settings["spark.kubernetes.container.image"] == "millrace:0.1.0"
    assert words[words.index("run") - 1] == IN_IMAGE
    assert "millrace-" not in option(words, "--py-files")


def test_what_is_set_wins_over_what_is_chosen(offline_run: Run, file: str) -> None:
    given = ("--set", "spark.executor.memory=3g", "--set", "spark.sql.shuffle.partitions=7", "--set", "spark.own=x")
    _, settings = told(offline_run, file, "--master", "spark://there:7077", *given)
    assert settings["spark.executor.memory"] == "3g"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.own"] == "x"


def test_one_of_several_pipelines_of_a_file(offline_run: Run, file: str, tmp_path: Path) -> None:
    several = tmp_path / "project" / "several.py"
    parts = [f'{name} = mr.Pipeline("{name}")\n{name}.source("n", mr.rate(1))\n' for name in ("one", "two")]
    parts += [f'{name}.sink("n", mr.files("{tmp_path}/{name}"))\n' for name in ("one", "two")]
    several.write_text("import millrace as mr\n" + "".join(parts))
    words, _ = told(offline_run, f"{several}::two", "--master", "spark://there:7077")
    assert option(words, "--name") == "two"
    assert words[words.index("run") + 1] == f"{several}::two"


def test_a_configuration_goes_along_if_it_stands_beside_the_file(offline_run: Run, file: str, tmp_path: Path) -> None:
    (tmp_path / "project" / "client.properties").touch()
    (tmp_path / "client.properties").touch()
    line = (file, "--master", "yarn", "--deploy-mode", "cluster", *STORE, "--kafka-config")
    words, _ = told(offline_run, *line, str(tmp_path / "project" / "client.properties"))
    assert option(words, "--kafka-config") == "project/client.properties"
    offline_run("submit", "--dry-run", *line, str(tmp_path / "client.properties"), code=2)


def test_included_files_go_along_if_they_stand_beside_the_file(offline_run: Run, file: str, tmp_path: Path) -> None:
    sources = "sources: {n: {rate: }}"
    (tmp_path / "sources.yaml").write_text(sources)
    (tmp_path / "project" / "sources.yaml").write_text(sources)
    text = "name: shared\ninclude: {}sources.yaml\nsinks: [{{from: n, files: out}}]"
    own, outside = tmp_path / "project" / "own.yaml", tmp_path / "project" / "outside.yaml"
    own.write_text(text.format(""))
    outside.write_text(text.format("../"))
    line = ("--master", "yarn", "--deploy-mode", "cluster", *STORE)
    told(offline_run, str(own), *line)
    assert "sources.yaml" in offline_run("submit", "--dry-run", str(outside), *line, code=2).err
    told(offline_run, str(outside), "--master", "yarn")


@pytest.mark.parametrize(
    "line",
    [
        ("--master", "local[2]"),
        ("--master", "nowhere"),
        ("--master", "spark://there:7077", "--deploy-mode", "cluster", *STORE),
        ("--master", "yarn", "--deploy-mode", "cluster"),
        ("--master", "yarn", "--deploy-mode", "elsewhere"),
        ("--master", "k8s://https://there:6443"),
        ("--master", "k8s://https://there:6443", "--image", "millrace", "--deploy-mode", "cluster", *STORE),
        ("--master", "yarn", "--set", "spark.hadoop.fs.s3a.secret.key=abc"),
        ("--master", "yarn", "--", "--set", "spark.hadoop.fs.s3a.secret.key=abc"),
        ("--master", "yarn", "--", "--set", "spark.proxy=http://me:abc@there"),
        ("--master", "yarn", "--deploy-mode", "cluster", "--state", "gs://runs/copy"),
    ],
)
def test_what_cannot_work_is_refused(offline_run: Run, file: str, line: tuple[str, ...]) -> None:
    offline_run("submit", "--dry-run", file, *line, code=2)


def test_a_secret_that_the_driver_fills_in(offline_run: Run, file: str) -> None:
    given = ("--set", "spark.hadoop.fs.s3a.secret.key=${S3_SECRET}")
    words, _ = told(offline_run, file, "--master", "yarn", "--", *given)
    assert tuple(words[-2:]) == given


def test_what_a_running_pipeline_serves_is_left_alone(offline_run: Run, file: str) -> None:
    """Executors that come later fetch what the first ones had."""
    line = (file, "--master", "spark://there:7077")
    before, _ = told(offline_run, *line)
    served = {path: Path(path).read_bytes() for path in option(before, "--py-files").split(",")}
    (Path(file).parent / "more.py").write_text("new = True\n")
    after, _ = told(offline_run, *line)
    assert option(after, "--py-files").split(",")[0] in served, "what is the same is packed once"
    assert option(after, "--py-files").split(",")[1] not in served
    assert {path: Path(path).read_bytes() for path in served} == served


def test_a_state_on_a_store_is_for_runs(offline_run: Run, file: str) -> None:
    offline_run("plan", file, *STORE, code=2)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_submitted_pipeline_runs(
    offline_millrace: CommandLine, file: str, standalone: Standalone, tmp_path: Path
) -> None:
    offline_millrace.environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    state = ("--state", str(tmp_path / "shared"))
    small = ("--set", "spark.executor.memory=512m", "--set", "spark.driver.host=127.0.0.1")
    small += ("--set", "spark.sql.shuffle.partitions=3")
    offline_millrace("submit", file, "--master", standalone.url, *state, *small, "--", "--for", "20s", "--no-dashboard")
    assert (tmp_path / "shared" / "checkpoints" / "even" / "commits" / "0").exists()
    assert list((tmp_path / "out").glob("*.parquet"))
    planned = (tmp_path / "shared" / "checkpoints" / "even" / "offsets" / "0").read_text().splitlines()[1]
    assert json.loads(planned)["conf"]["spark.sql.shuffle.partitions"] == "3"
