"""Options that several commands share, each made from its setting."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.output import say
from millrace.errors import InvalidOption, NoCluster
from millrace.settings import KAFKA, KAFKA_CONFIG, KAFKA_DATA, Setting

if TYPE_CHECKING:
    from millrace.clients.cluster import Cluster


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
    from millrace.clients.cluster import Cluster
    from millrace.clients.properties import read_properties
    from millrace.services import kafka as service

    address = KAFKA.value(kafka)
    if address:
        return Cluster.at(address, KAFKA_CONFIG.value(config), environment=True, tell=warn)
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
