"""Options that several commands share, each made from its setting.

Options of the commands that take a pipeline's file: which one, where it remembers, and what Spark is told.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.output import say
from millrace.errors import InvalidOption, NoCluster
from millrace.object_stores import StorePath, state_path
from millrace.settings import KAFKA, KAFKA_CONFIG, KAFKA_DATA, STATE, Setting

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.pipeline.model import PipelineDef


def setting_option(setting: Setting[Any], metavar: str, flag: str | None = None) -> Any:
    """The command-line option of a setting; its text is given to `Setting.value`."""
    return typer.Option(
        flag or setting.flag,
        metavar=metavar,
        help=f"{setting.help} (env {setting.variable})",
        show_default=setting.shown_default or str(setting.default),
    )


KafkaAddress = Annotated[str | None, setting_option(KAFKA, "HOST:PORT")]
KafkaConfig = Annotated[str | None, setting_option(KAFKA_CONFIG, "FILE")]
DataFolder = Annotated[str | None, setting_option(KAFKA_DATA, "DIR", "--data")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Act without asking.")]


def chosen_cluster(kafka: str | None, config: str | None, data: str | None) -> Cluster:
    """The cluster to work on: the one that was named, else ours that runs in the data folder."""
    from millrace.clients.kafka.cluster import Cluster
    from millrace.clients.properties import read_properties
    from millrace.services import kafka as service

    address = KAFKA.value(kafka)
    if address:
        return Cluster.at(address, KAFKA_CONFIG.value(config), environment=True, notify=warn)
    folder = KAFKA_DATA.value(data)
    layout = service.running(folder)
    if layout is None:
        raise NoCluster(
            f"there is no Kafka to use: none was named, and none of ours runs in {folder}",
            hint="start one with millrace kafka up --detach, or name one with --kafka HOST:PORT",
        )
    ours = service.cluster_of(folder, layout)
    extra = KAFKA_CONFIG.value(config)
    return replace(ours, options={**ours.options, **read_properties(extra, warn)}) if extra else ours


def warn(sentence: str) -> None:
    """Tell what is not an error and should not stay as it is."""
    say(f"warning: {sentence}")


def pairs(given: list[str] | None, option: str) -> list[tuple[str, str]]:
    """`KEY=VALUE` options in their order."""
    found: list[tuple[str, str]] = []
    for pair in given or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            missing = "name before its '='" if equals else "'='"
            raise InvalidOption(f"{option} {pair!r} has no {missing}", hint=f"write {option} KEY=VALUE")
        found.append((key, value))
    return found


def spark_settings(given: list[str] | None) -> dict[str, str]:
    """The `--set` options; `${NAME}` and `${file:PATH}` in a value keep a secret out of the command line."""
    from millrace.pipeline.interpolation import fill
    from millrace.pipeline.secret import Secret, guarded

    found: dict[str, str] = {}
    for key, text in pairs(given, "--set"):
        filled = fill(text, os.environ)
        for name in filled.missing:
            raise InvalidOption(f"--set {key}: the environment variable {name} is not set", hint=f"export {name}=…")
        for error in filled.unusable:
            raise error
        found[key] = Secret(filled.text) if filled.files else guarded(key, filled.text)
    return found


def confirm(question: str, yes: bool) -> bool:
    """Whether the user agrees; where nobody can be asked, only --yes does."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidOption("nothing was done: nobody can be asked here", hint="add --yes to act without asking")
    return typer.confirm(question, err=True)


PipelineFile = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's .py or .yaml file.")]
State = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="DIR", parser=state_path, show_default=".millrace/pipelines/NAME", help="Where it remembers."
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", show_default="local[*]", help="The Spark master.")
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A Spark setting; may be given several times."),
]
ShipPackages = Annotated[
    bool, typer.Option("--ship-packages", help="Send this Python's packages to executors that do not have them.")
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="QUERY",
        help="Go on with the state of a query though it was computed otherwise; may be given several times.",
    ),
]


def state_folder(pipeline: PipelineDef, state: Path | None, *, store: bool = False) -> Path:
    """Where a pipeline remembers; its first generation, if it has several. Only a run reaches one on a store."""
    if isinstance(state, StorePath) and not store:
        raise InvalidOption(
            f"this command does not reach a state folder on a store: {state}",
            why="only a run has the keys and the way to it",
            hint="millrace run and submit take it; this command wants a folder that this machine sees",
        )
    return state or STATE.value() / "pipelines" / pipeline.name
