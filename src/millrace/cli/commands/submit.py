"""`millrace submit`: send a pipeline to a cluster with spark-submit."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.app import OUTPUT_PANEL, SPARK_PANEL
from millrace.cli.options import (
    KafkaAddress,
    KafkaConfig,
    PipelineFile,
    ShipPackages,
    SparkSettings,
    State,
    spark_settings,
    state_folder,
)
from millrace.cli.output import print_line, print_result
from millrace.cli.services import fetch_jars
from millrace.errors import InvalidOption, SparkFailed
from millrace.settings import KAFKA, KAFKA_CONFIG

_MODES = ("client", "cluster")


def submit(
    file: PipelineFile,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Options for millrace run.")
    ] = None,
    *,
    master: str = SPARK_PANEL.option("spark://HOST:PORT, yarn or k8s://URL.", "URL", default=...),
    set_: SparkSettings = None,
    deploy_mode: str = SPARK_PANEL.option(
        "Run the driver here, or on the cluster.", "client|cluster", default="client"
    ),
    ship_packages: ShipPackages = False,
    image: str | None = SPARK_PANEL.option(
        "For Kubernetes: an image with Millrace in it.", "NAME", show_default="none"
    ),
    state: State = None,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    dry_run: bool = OUTPUT_PANEL.flag("Print the command, and run nothing."),
) -> None:
    """Send a pipeline with everything it needs to a cluster, with spark-submit."""
    from millrace.cli.commands.check import load_sound
    from millrace.cli.spark_submit import (
        Submission,
        carried_properties,
        require_carried,
        submit_command,
        submit_environment,
    )
    from millrace.connectors.base.registry import CONNECTORS, uses_system
    from millrace.engine.checkpoints.state_dir import nearby, require_fit
    from millrace.engine.run import jar_sets
    from millrace.engine.session.executors import require_reachable
    from millrace.pipeline.plan import make_plan, with_letters

    if deploy_mode not in _MODES:
        raise InvalidOption(f"there is no deploy mode {deploy_mode!r}", hint=" or ".join(_MODES))
    pipeline = load_sound(file)
    path, _, chosen = file.partition("::")
    if deploy_mode == "cluster":
        require_carried(pipeline.sources, Path(path))
    address, folder = KAFKA.value(kafka), state_folder(pipeline, state, store=True)
    if uses_system(pipeline, "kafka"):
        if address is None:
            raise InvalidOption("a pipeline on a cluster needs a Kafka there", hint="name it with --kafka HOST:PORT")
        require_reachable(master, address)
    require_fit(with_letters(make_plan(pipeline), CONNECTORS), folder)
    config = KAFKA_CONFIG.value(kafka_config)
    if config is not None and deploy_mode == "cluster":
        config = carried_properties(Path(config), Path(path))
    options = {"--state": state, "--kafka": address, "--kafka-config": config}
    given = [word for flag, value in options.items() if value is not None for word in (flag, str(value))]
    sets, settings, words = jar_sets(pipeline, folder), spark_settings(set_), (*given, *(arguments or ()))
    submission = Submission(
        Path(path), pipeline.name, master, deploy_mode, settings, sets, ship_packages, image, words, chosen
    )
    submission.require_sound()
    fetch_jars("spark", *sets)
    line = submit_command(submission, nearby(folder, pipeline.name).absolute() / "shipped")
    if dry_run:
        environment = [f"{name}={shlex.quote(value)}" for name, value in submit_environment(submission).items()]
        print_result(" ".join([*environment, shlex.join(line)]))
        return
    print_line(f"submitting {pipeline.name!r} to {master}")
    code = subprocess.run(line, env=os.environ | submit_environment(submission), check=False).returncode
    if code:
        raise SparkFailed(f"spark-submit ended with exit code {code}", why="its output is above")
