"""The spark-submit command for a pipeline, and the archives that it sends."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

import millrace
from millrace.engine.session import shipping
from millrace.engine.session.session import with_connectors, with_packages
from millrace.engine.session.spark_conf import MEMORY, PARTITIONS, is_local, spark_choices
from millrace.errors import InvalidOption, SparkFailed
from millrace.object_stores import is_url
from millrace.pipeline.model import SourceDef
from millrace.pipeline.secret import holds_password, shown

PROJECT = "project"
"""The folder with the pipeline's file and its neighbours, in the working directory of a driver on the cluster."""
IN_IMAGE = "local:///opt/millrace/submitted.py"
"""The program in the image of deploy/Dockerfile."""
_JARS, _ARCHIVES = "spark.jars", "spark.archives"
_DRIVER_SETTINGS = ("spark.master", PARTITIONS, MEMORY)
_REFERENCE = re.compile(r"\$\{[^}]+\}")
"""A value that the driver replaces, from its own environment or a file."""
_UPLOAD_PATH = "spark.kubernetes.file.upload.path"


@dataclass(frozen=True)
class Submission:
    """What to run, and where."""

    file: Path
    name: str
    master: str
    deploy: str = "client"
    """`client`: the driver, with its dashboard, runs here. `cluster`: the cluster runs it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    jar_sets: tuple[str, ...] = ()
    packages: bool = False
    image: str | None = None
    """For Kubernetes: an image with Millrace in it."""
    arguments: tuple[str, ...] = ()
    """Of `millrace run`, after the file and the master."""
    chosen: str = ""
    """Which pipeline of the file, if it has several."""

    def require_sound(self) -> None:
        """Raise InvalidOption if such a submission cannot work."""
        self._require_no_secrets()
        if is_local(self.master):
            raise InvalidOption(f"{self.master} is no cluster", hint="millrace run FILE is enough for this machine")
        kubernetes = self.master.startswith("k8s://")
        if self.deploy == "cluster" and self.master.startswith("spark://"):
            raise InvalidOption(
                "a standalone cluster does not run drivers in Python", hint="leave --deploy-mode cluster out"
            )
        if kubernetes and self.image is None:
            raise InvalidOption("Kubernetes needs an image", hint="add --image NAME; deploy/Dockerfile builds one")
        if kubernetes and self.deploy == "cluster" and _UPLOAD_PATH not in self.settings:
            raise InvalidOption(
                "a driver in Kubernetes cannot fetch the project from this machine",
                why="Spark uploads what is sent to an object store first, and none is configured",
                hint=f"add --set {_UPLOAD_PATH}=s3a://BUCKET/FOLDER, which spark-submit must reach from here; or start "
                "it with deploy/kubernetes/pipeline.yaml, which needs none",
            )
        if self.deploy == "cluster" and not is_url(self._state):
            raise InvalidOption(
                "a driver on the cluster needs its state on an object store",
                why="its disk is deleted when it ends, and the next one would start from scratch",
                hint="add --state s3a://BUCKET/FOLDER or hdfs://HOST:PORT/FOLDER",
            )

    def _require_no_secrets(self) -> None:
        """Raise InvalidOption if a setting, here or among the arguments for the driver, is a secret."""
        pairs = [(key, value) for key, _, value in (word.partition("=") for word in self.arguments)]
        given = [*self.settings.items(), *(pair for pair in pairs if not _REFERENCE.fullmatch(pair[1]))]
        secrets = [key for key, value in given if value and shown(key, value) != value]
        if secrets or any(map(holds_password, self.arguments)):
            raise InvalidOption(
                f"{secrets[0] if secrets else 'an argument'} holds a secret, and every user can read the command line "
                "of spark-submit",
                hint="put it into the cluster's spark-defaults.conf, or give its machines permissions of their own",
            )

    @property
    def _state(self) -> str:
        given = [*self.arguments, ""]
        return given[given.index("--state") + 1] if "--state" in given else ""


def submit_environment(submission: Submission) -> dict[str, str]:
    """Return the environment for spark-submit: a driver that runs here uses this Python."""
    return {"PYSPARK_DRIVER_PYTHON": sys.executable} if submission.deploy == "client" else {}


def submit_command(submission: Submission, folder: Path) -> list[str]:
    """Return the command; the archives that it sends are written to a folder."""
    submission.require_sound()
    settings = dict(_settings(submission))
    command = [str(spark_submit()), "--master", submission.master]
    command += ["--deploy-mode", submission.deploy, "--name", submission.name]
    project = submission.file.absolute().parent
    modules = [] if submission.image is not None else [shipping.millrace_zip(folder)]
    archives = [settings.pop(_ARCHIVES, "")]
    if submission.deploy == "cluster":  # the whole folder, with data that the pipeline names
        archives.append(f"{shipping.whole_zip(project, folder)}#{PROJECT}")
    command += _listed("--jars", settings.pop(_JARS, "").split(","))
    command += _listed("--py-files", [str(path) for path in (*modules, shipping.project_zip(project, folder))])
    command += _listed("--archives", archives)
    command += [word for key, value in sorted(settings.items()) for word in ("--conf", f"{key}={value}")]
    return [*command, *_program(submission)]


def _settings(submission: Submission) -> Mapping[str, str]:
    """Return the settings for the command line; the driver chooses those that depend on its machine."""
    chosen = {choice.key: choice.value for choice in spark_choices(master=submission.master, given=submission.settings)}
    for key in _DRIVER_SETTINGS:
        del chosen[key]
    given = with_connectors({**chosen, **submission.settings}, submission.jar_sets)
    if submission.image:
        given = {"spark.kubernetes.container.image": submission.image, **given}
    return with_packages(given) if submission.packages else given


def _program(submission: Submission) -> list[str]:
    """Return the program and its arguments: `millrace run`, here or on the cluster."""
    inside = f"{PROJECT}/{submission.file.name}" if submission.deploy == "cluster" else str(submission.file.absolute())
    inside = f"{inside}::{submission.chosen}" if submission.chosen else inside
    here = Path(millrace.__file__).parent / "cli" / "submit_main.py"
    main = IN_IMAGE if submission.image and submission.deploy == "cluster" else str(here)
    return [main, "run", inside, "--master", submission.master, *submission.arguments]


def carried_properties(config: Path, file: Path) -> Path:
    """Return the path of a file of client properties, in the pipeline's folder, for a driver on the cluster."""
    try:
        return Path(PROJECT) / config.absolute().relative_to(file.absolute().parent)
    except ValueError:
        raise InvalidOption(
            f"a driver on the cluster has no {config}",
            why="only the folder of the pipeline's file is sent there",
            hint="move it to that folder, or leave --deploy-mode cluster out",
        ) from None


def require_carried(sources: Iterable[SourceDef], file: Path) -> None:
    """Raise if a driver on the cluster would not have a file that the pipeline's file includes."""
    folder = file.absolute().parent
    for source in sources:
        if source.included and not Path(source.place.file).absolute().is_relative_to(folder):
            raise InvalidOption(
                f"a driver on the cluster has no {source.place.file}, which {file} includes",
                why="only the folder of the pipeline's file is sent there",
                hint="move it to that folder, or leave --deploy-mode cluster out",
            )


def _listed(option: str, values: Sequence[str]) -> list[str]:
    given = ",".join(filter(None, values))
    return [option, given] if given else []


def spark_submit() -> Path:
    """Return the path of PySpark's spark-submit."""
    spec = util.find_spec("pyspark")
    path = Path(spec.origin).parent / "bin" / "spark-submit" if spec and spec.origin else None
    if path is None or not path.exists():
        raise SparkFailed("PySpark's spark-submit is missing", hint="pip install pyspark")
    return path
