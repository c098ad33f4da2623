"""The image and the manifests are in step with the product: versions, options, ports, names."""

from __future__ import annotations

import re
import tomllib
import zipfile
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from millrace import __version__
from millrace.cli.main import app
from millrace.cli.spark_submit import IN_IMAGE
from millrace.connectors.base.registry import CONNECTORS
from millrace.dashboard.server import ServerOptions
from millrace.engine.checkpoints.state_dir import require_fit
from millrace.engine.session.executors import require_reachable
from millrace.engine.session.spark_conf import PARTITIONS, spark_choices
from millrace.pipeline.loading import load
from millrace.pipeline.plan import make_plan, with_letters
from millrace.services.jars import jar_sets
from millrace.settings import STOP_TIMEOUT

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
ENTRYPOINT = (DEPLOY / "entrypoint.sh").read_text("utf-8")


GIVEN = {"<BUCKET>": "runs", "<KAFKA>": "broker", "$(POD)": "trending-0", "$(NAMESPACE)": "default"}
"""What whoever deploys fills in, and what Kubernetes does."""


def rendered(name: str) -> list[dict[str, Any]]:
    """What a manifest describes once everything is filled in."""
    text = (DEPLOY / "kubernetes" / name).read_text("utf-8")
    for mark, value in GIVEN.items():
        text = text.replace(mark, value)
    written = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert not re.search(r"<[A-Z]+>|\$\(", written)
    return list(yaml.safe_load_all(text))


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The same by kind; of two of a kind the first."""
    return {one["kind"]: one for one in reversed(rendered(name))}


@pytest.fixture
def driver() -> dict[str, Any]:
    """The container of the driver."""
    spec = documents("pipeline.yaml")["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return {**container, "grace": spec["terminationGracePeriodSeconds"], "account": spec["serviceAccountName"]}


def settings(container: dict[str, Any]) -> dict[str, str]:
    args = container["args"]
    return dict(args[at + 1].split("=", 1) for at, word in enumerate(args) if word == "--set")


def test_the_image_has_this_version_and_a_python_that_it_runs_on() -> None:
    assert f"--build-arg VERSION={__version__} --tag millrace:{__version__}" in DOCKERFILE
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (python,) = re.findall(r"^FROM python:([\d.]+)-", DOCKERFILE, re.MULTILINE)
    least = project["requires-python"].removeprefix(">=")
    assert tuple(map(int, python.split("."))) >= tuple(map(int, least.split(".")))
    assert f"python{python}/site-packages/pyspark" in DOCKERFILE
    assert f"python{python}/site-packages/millrace/cli/submit_main.py {IN_IMAGE.removeprefix('local://')}" in DOCKERFILE
    assert (ROOT / "src/millrace/cli/submit_main.py").is_file()


def test_the_image_is_made_of_versions_that_were_tested() -> None:
    assert (ROOT / "constraints.txt").is_file()
    assert "&& cp constraints.txt deploy/dist\n" in DOCKERFILE
    assert " dist/constraints.txt /tmp/install/\n" in DOCKERFILE
    assert "pip install --no-cache-dir --constraint /tmp/install/constraints.txt" in DOCKERFILE


def test_the_image_has_jars_that_there_are() -> None:
    fetched = re.findall(r"millrace jars fetch (\w+)", DOCKERFILE)
    assert fetched == ["spark", "s3"]
    assert set(fetched) <= set(jar_sets())


def test_the_image_starts_what_spark_asks_for() -> None:
    assert 'ENTRYPOINT ["/bin/bash", "/opt/entrypoint.sh"]' in DOCKERFILE
    assert "COPY entrypoint.sh /opt/entrypoint.sh" in DOCKERFILE
    (backend,) = re.findall(r"org\.apache\.spark\.[\w.]+", ENTRYPOINT)
    spec = util.find_spec("pyspark")
    assert spec
    assert spec.origin
    (jar,) = (Path(spec.origin).parent / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as content:
        assert f"{backend.replace('.', '/')}.class" in content.namelist()


def test_the_driver_is_called_with_options_that_there_are(driver: dict[str, Any], tmp_path: Path) -> None:
    assert driver["args"][:2] == ["millrace", "run"]
    run = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    asked = run.make_context("run", driver["args"][2:]).params
    assert str(asked["state"]) == "s3a://runs/trending"
    assert asked["kafka"] == "broker:9092"
    file = tmp_path / Path(asked["file"]).name
    file.write_text(documents("pipeline.yaml")["ConfigMap"]["data"][file.name])
    plan = with_letters(make_plan(load(str(file)), panels=True), CONNECTORS)
    require_fit(plan, asked["state"])
    require_reachable(asked["master"], asked["kafka"])
    chosen = spark_choices(master=asked["master"], given=settings(driver))
    assert next(one.value for one in chosen if one.key == PARTITIONS) == "4"


def test_executors_find_a_driver_that_is_not_ready(driver: dict[str, Any]) -> None:
    """It becomes ready when they have come: whoever waits for that before they can come waits for ever."""
    names = {one["metadata"]["name"]: one["spec"] for one in rendered("pipeline.yaml") if one["kind"] == "Service"}
    found = names[settings(driver)["spark.driver.host"].split(".")[0]]
    assert found["clusterIP"] == "None"
    assert found["publishNotReadyAddresses"] is True
    assert driver["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for probe in ("startupProbe", "livenessProbe"):  # those end it
        assert "httpGet" not in driver.get(probe, {})


def test_one_image_for_driver_and_executors(driver: dict[str, Any]) -> None:
    assert driver["image"] == f"millrace:{__version__}"
    assert settings(driver)["spark.kubernetes.container.image"] == driver["image"]


def test_ports_are_the_same_everywhere(driver: dict[str, Any]) -> None:
    ports = {one["name"]: one["containerPort"] for one in driver["ports"]}
    services = [one for one in rendered("pipeline.yaml") if one["kind"] == "Service"]
    assert {one["targetPort"]: one["port"] for service in services for one in service["spec"]["ports"]} == ports
    app = documents("pipeline.yaml")["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert all(service["spec"]["selector"] == app for service in services)
    page = driver["args"][driver["args"].index("--port") + 1]
    assert ports == {
        "driver": int(settings(driver)["spark.driver.port"]),
        "blocks": int(settings(driver)["spark.driver.blockManager.port"]),
        "page": int(page),
    }
    assert f"EXPOSE {page}" in DOCKERFILE
    (host,) = (one["metadata"]["name"] for one in services if one["spec"].get("clusterIP") == "None")
    assert settings(driver)["spark.driver.host"] == f"{host}.default.svc"


def test_the_driver_may_do_what_it_must_and_has_time_to_end(driver: dict[str, Any]) -> None:
    access = documents("access.yaml")
    assert access["RoleBinding"]["subjects"][0]["name"] == access["ServiceAccount"]["metadata"]["name"]
    assert driver["account"] == access["ServiceAccount"]["metadata"]["name"]
    assert settings(driver)["spark.kubernetes.authenticate.executor.serviceAccountName"] == driver["account"]
    assert driver["grace"] > STOP_TIMEOUT.default


def test_the_pipeline_in_the_manifest_is_the_example() -> None:
    given = yaml.safe_load(documents("pipeline.yaml")["ConfigMap"]["data"]["pipeline.yaml"])
    example = yaml.safe_load((ROOT / "examples/trending/pipeline.yaml").read_text("utf-8"))
    assert given == {name: part for name, part in example.items() if name != "panels"}
    assert ServerOptions().host == "127.0.0.1"  # so the manifest must say --host
