"""A pipeline as spark-submit wants it: the command, and what is packed for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

import millrace
from millrace.engine.session import shipping
from millrace.engine.session.session import with_connectors, with_packages
from millrace.engine.session.spark_conf import MEMORY, PARTITIONS, is_local, spark_choices
from millrace.errors import InvalidOption, SparkFailed
from millrace.object_stores import is_url
from millrace.pipeline.secret import holds_password, shown

PROJECT = "project"
"""The folder, where a driver on the cluster works, that has the pipeline's file and what stands beside it."""
IN_IMAGE = "local:///opt/millrace/submitted.py"
"""The program in an image of ours."""
_JARS, _ARCHIVES = "spark.jars", "spark.archives"
_OF_THE_DRIVER = ("spark.master", PARTITIONS, MEMORY)
_FILLED_THERE = re.compile(r"\$\{[^}]+\}")
"""A value that the driver fills in, from its own environment or a file."""
_UPLOADS = "spark.kubernetes.file.upload.path"


@dataclass(frozen=True)
class Submission:
    """What shall run where."""

    file: Path
    name: str
    master: str
    deploy: str = "client"
    """`client`: the driver, with its page, is here. `cluster`: the cluster runs it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    jar_sets: tuple[str, ...] = ()
    packages: bool = False
    image: str | None = None
    """For Kubernetes: an image with Millrace in it."""
    arguments: tuple[str, ...] = ()
    """For `millrace run` there, after the file and the master."""
    chosen: str = ""
    """Which pipeline of the file, where it has several."""

    def require_sound(self) -> None:
        """Raise when such a submission cannot work."""
        self._require_no_secrets()
        if is_local(self.master):
            raise InvalidOption(f"{self.master} is no cluster", hint="millrace run FILE is enough for this machine")
        kubernetes = self.master.startswith("k8s://")
        if self.deploy == "cluster" and self.master.startswith("spark://"):
            raise InvalidOption(
                "a standalone cluster does not run drivers in Python", hint="leave --deploy-mode cluster out"
            )
        if kubernetes and self.image is None:
            raise InvalidOption("Kubernetes needs an image", hint="add --image NAME; deploy/Dockerfile makes one")
        if kubernetes and self.deploy == "cluster" and _UPLOADS not in self.settings:
            raise InvalidOption(
                "a driver in Kubernetes cannot fetch the project from this machine",
                why="Spark puts what is sent on a store first, and nobody says which",
                hint=f"add --set {_UPLOADS}=s3a://BUCKET/FOLDER, which spark-submit must reach from here; or start it "
                "with deploy/kubernetes/pipeline.yaml, which needs none",
            )
        if self.deploy == "cluster" and not is_url(self._state):
            raise InvalidOption(
                "a driver on the cluster needs its state on a store",
                why="its own disk is gone when it ends, and the next one would begin anew",
                hint="add --state s3a://BUCKET/FOLDER or hdfs://HOST:PORT/FOLDER",
            )

    def _require_no_secrets(self) -> None:
        """Raise when a setting, here or among the arguments for the driver, is one."""
        behind = [(key, value) for key, _, value in (word.partition("=") for word in self.arguments)]
        open_there = [(key, value) for key, value in behind if not _FILLED_THERE.fullmatch(value)]
        given = [*self.settings.items(), *open_there]
        found = [key for key, value in given if value and shown(key, value) != value]
        if found or any(map(holds_password, self.arguments)):
            raise InvalidOption(
                f"{found[0] if found else 'an argument'} holds a secret, and everybody can read the command line of "
                "spark-submit",
                hint="put it into the spark-defaults.conf there, or give the cluster's machines their own rights",
            )

    @property
    def _state(self) -> str:
        given = [*self.arguments, ""]
        return given[given.index("--state") + 1] if "--state" in given else ""


def submit_environment(wanted: Submission) -> dict[str, str]:
    """What spark-submit has to know of this Python; a driver on the cluster has its own, and would look for ours."""
    return {"PYSPARK_DRIVER_PYTHON": sys.executable} if wanted.deploy == "client" else {}


def submit_command(wanted: Submission, folder: Path) -> list[str]:
    """The command; what it sends is packed in a folder."""
    wanted.require_sound()
    settings = dict(_settings(wanted))
    made = [str(spark_submit()), "--master", wanted.master, "--deploy-mode", wanted.deploy, "--name", wanted.name]
    archives = [settings.pop(_ARCHIVES, ""), *([_project(wanted, folder)] if wanted.deploy == "cluster" else [])]
    made += _listed("--jars", settings.pop(_JARS, "").split(","))
    made += _listed("--py-files", [str(one) for one in _modules(wanted, folder)])
    made += _listed("--archives", archives)
    made += [word for key, value in sorted(settings.items()) for word in ("--conf", f"{key}={value}")]
    return [*made, *_program(wanted)]


def _settings(wanted: Submission) -> Mapping[str, str]:
    """What must be said here; what follows from other settings, the driver chooses, who knows its machine's too."""
    chosen = {choice.key: choice.value for choice in spark_choices(master=wanted.master, given=wanted.settings)}
    for key in _OF_THE_DRIVER:
        del chosen[key]
    given = with_connectors({**chosen, **wanted.settings}, wanted.jar_sets)
    if wanted.image:
        given = {"spark.kubernetes.container.image": wanted.image, **given}
    return with_packages(given) if wanted.packages else given


def _program(wanted: Submission) -> list[str]:
    """What runs, and its arguments: `millrace run`, wherever that is."""
    inside = f"{PROJECT}/{wanted.file.name}" if wanted.deploy == "cluster" else str(wanted.file.absolute())
    inside = f"{inside}::{wanted.chosen}" if wanted.chosen else inside
    here = Path(millrace.__file__).parent / "cli" / "submit_main.py"
    main = IN_IMAGE if wanted.image and wanted.deploy == "cluster" else str(here)
    return [main, "run", inside, "--master", wanted.master, *wanted.arguments]


def carried_properties(config: Path, file: Path) -> Path:
    """A file of client properties as a driver on the cluster finds it, if it stands beside the pipeline."""
    try:
        return Path(PROJECT) / config.absolute().relative_to(file.absolute().parent)
    except ValueError:
        raise InvalidOption(
            f"a driver on the cluster has no {config}",
            why="what goes there is what stands beside the pipeline's file",
            hint="put it there, or leave --deploy-mode cluster out",
        ) from None


def _modules(wanted: Submission, folder: Path) -> Iterator[Path]:
    if wanted.image is None:
        yield shipping.millrace_zip(folder)
    yield shipping.project_zip(wanted.file.absolute().parent, folder)


def _project(wanted: Submission, folder: Path) -> str:
    """All that stands beside the file, not only what can be imported: data that the pipeline names too."""
    return f"{shipping.whole_zip(wanted.file.absolute().parent, folder)}#{PROJECT}"


def _listed(option: str, values: Sequence[str]) -> list[str]:
    given = [one for one in values if one]
    return [option, ",".join(given)] if given else []


def spark_submit() -> Path:
    """PySpark's own."""
    spec = util.find_spec("pyspark")
    found = Path(spec.origin).parent / "bin" / "spark-submit" if spec and spec.origin else None
    if found is None or not found.exists():
        raise SparkFailed("PySpark's spark-submit is missing", hint="pip install pyspark")
    return found
