"""Options that several commands share, and what their values mean.

- `KafkaOptions` chooses a cluster; `SparkOptions` the master and Spark's settings.
- `State` and `state_folder` name the state directory of a pipeline.
- `pairs` and `confirm` read `KEY=VALUE` options and ask before data is deleted.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.app import KAFKA_PANEL, OUTPUT_PANEL, SPARK_PANEL, STATE_PANEL, OptionGroup, renamed_option
from millrace.cli.output import print_line
from millrace.errors import InvalidOption, NoCluster
from millrace.object_stores import StorePath, state_path
from millrace.settings import KAFKA, KAFKA_CONFIG, KAFKA_DATA, STATE

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.pipeline.model import PipelineDef


KafkaAddress = Annotated[str | None, KAFKA_PANEL.setting(KAFKA, "HOST:PORT")]
KafkaConfig = Annotated[str | None, KAFKA_PANEL.setting(KAFKA_CONFIG, "FILE")]
DataFolder = Annotated[str | None, KAFKA_PANEL.setting(KAFKA_DATA, "DIR")]
AsJson = Annotated[bool, OUTPUT_PANEL.flag("Print JSON instead of a table.", names="--json")]
Yes = Annotated[bool, OUTPUT_PANEL.flag("Do not ask for confirmation.", names="--yes -y")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.", show_default=False)]
PipelineFile = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's .py or .yaml file.")]
State = Annotated[
    Path | None,
    STATE_PANEL.option("State directory.", "DIR", parser=state_path, show_default=".millrace/pipelines/NAME"),
]
StateRoot = Annotated[str | None, STATE_PANEL.setting(STATE, "DIR")]
ShipPackages = Annotated[bool, SPARK_PANEL.flag("Send the packages of this Python to executors that do not have them.")]


@dataclass(frozen=True)
class KafkaOptions(OptionGroup):
    """Which Kafka cluster to work on."""

    kafka: KafkaAddress = None
    kafka_config: KafkaConfig = None
    data: DataFolder = None

    def cluster(self) -> Cluster:
        """Return the cluster that was named, else ours that runs in the data directory."""
        from millrace.clients.kafka.cluster import Cluster
        from millrace.clients.properties import read_properties
        from millrace.services import kafka as service

        address = KAFKA.value(self.kafka)
        if address:
            return Cluster.at(address, KAFKA_CONFIG.value(self.kafka_config), environment=True, notify=warn)
        folder = KAFKA_DATA.value(self.data)
        layout = service.running(folder)
        if layout is None:
            raise NoCluster(
                f"there is no Kafka to use: none was named, and none of ours runs in {folder}",
                hint="start one with millrace kafka up --detach, or name one with --kafka HOST:PORT",
            )
        ours = service.cluster_of(folder, layout)
        extra = KAFKA_CONFIG.value(self.kafka_config)
        return replace(ours, options={**ours.options, **read_properties(extra, warn)}) if extra else ours


SparkSettings = Annotated[
    list[str] | None, SPARK_PANEL.option("A Spark setting; may be given several times.", "KEY=VALUE")
]


@dataclass(frozen=True)
class SparkOptions(OptionGroup):
    """Where Spark runs, and its settings."""

    master: Annotated[str | None, SPARK_PANEL.option("Spark master.", "URL", show_default="local[*]")] = None
    set_: SparkSettings = None

    def settings(self) -> dict[str, str]:
        """Return the settings."""
        return spark_settings(self.set_)


@dataclass(frozen=True)
class AcceptOptions(OptionGroup):
    """Which queries may keep a state that another version of their code has computed."""

    accept_state_change: Annotated[
        list[str] | None,
        STATE_PANEL.option(
            "Resume a query with its state although its code has changed; may be given several times.", "QUERY"
        ),
    ] = None
    accept: Annotated[list[str] | None, renamed_option("--accept", "--accept-state-change")] = None

    def queries(self) -> list[str]:
        """Return the names of the queries."""
        return [*(self.accept_state_change or ()), *(self.accept or ())]


def warn(sentence: str) -> None:
    """Print a warning."""
    print_line(f"warning: {sentence}")


def pairs(given: list[str] | None, flag: str) -> list[tuple[str, str]]:
    """Return the keys and values of `KEY=VALUE` options, in their order."""
    parsed: list[tuple[str, str]] = []
    for pair in given or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            missing = "name before its '='" if equals else "'='"
            raise InvalidOption(f"{flag} {pair!r} has no {missing}", hint=f"write {flag} KEY=VALUE")
        parsed.append((key, value))
    return parsed


def spark_settings(given: list[str] | None) -> dict[str, str]:
    """Return Spark's settings; `${NAME}` and `${file:PATH}` in a value keep a secret out of the command line."""
    from millrace.pipeline.interpolation import fill
    from millrace.pipeline.secret import Secret, guarded

    settings: dict[str, str] = {}
    for key, text in pairs(given, "--set"):
        filled = fill(text, os.environ)
        for name in filled.missing:
            raise InvalidOption(f"--set {key}: the environment variable {name} is not set", hint=f"export {name}=…")
        for error in filled.unusable:
            raise error
        settings[key] = Secret(filled.text) if filled.files else guarded(key, filled.text)
    return settings


def confirm(question: str, yes: bool) -> bool:
    """Return whether the user agrees; without a terminal, only --yes does."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidOption(
            "nothing was done: there is no terminal to ask for confirmation", hint="add --yes to act without asking"
        )
    return typer.confirm(question, err=True)


def state_folder(pipeline: PipelineDef, state: Path | None, *, store: bool = False) -> Path:
    """Return the state directory of a pipeline (of its first generation). Only a run can use an object store."""
    if isinstance(state, StorePath) and not store:
        raise InvalidOption(
            f"this command cannot read a state directory on an object store: {state}",
            why="only a run has the credentials for it",
            hint="millrace run and submit accept it; this command needs a directory on this machine",
        )
    return state or STATE.value() / "pipelines" / pipeline.name
