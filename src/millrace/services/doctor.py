"""Checks whether this machine has what Millrace needs, each with the command that fixes it."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import psutil

from millrace.clients.kafka.cluster import Cluster
from millrace.errors import MillraceError
from millrace.services import jars, kafka
from millrace.services.java import find_java
from millrace.services.process import free_port
from millrace.settings import CACHE, KAFKA, KAFKA_CONFIG, KAFKA_DATA, KAFKA_TIMEOUT
from millrace.units import format_bytes

_SPARK = "4.3"
_DISK = 2_000_000_000
_MEMORY = 2_000_000_000


@dataclass(frozen=True)
class Finding:
    """The result of a check: `ok`, `warn` (works, with less) or `bad`, and a fix."""

    name: str
    verdict: str
    found: str
    mend: str | None = None


def examine() -> list[Finding]:
    """Every check, in the order in which a newcomer meets the things."""
    return [_guarded(name, check) for name, check in _CHECKS.items()]


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except MillraceError as error:
        why = f"{error.message}; {error.why}" if error.why else error.message
        return Finding(name, "bad", why, error.hint)


def _java() -> Finding:
    java = find_java()
    return Finding("Java", "ok", f"{java.version} at {java.path}")


def _python() -> Finding:
    # Its version is not checked: an older one than 3.11 cannot even import this.
    return Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")


def _pyspark() -> Finding:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Finding("PySpark", "bad", "not installed", "pip install 'pyspark==4.3.0'")
    if not version.startswith(_SPARK):
        return Finding("PySpark", "warn", f"{version}; {_SPARK} is tested", "pip install 'pyspark==4.3.0'")
    return Finding("PySpark", "ok", version)


def _jar_set(name: str) -> Finding:
    jar_set, title, fetch = jars.jar_set(name), f"jars: {name}", f"millrace jars fetch {name}"
    if not jar_set.present():
        return Finding(title, "warn", "not fetched yet; fetched when first needed", fetch)
    if damaged := jar_set.damaged():
        names = ", ".join(jar.name for jar in damaged[:3])
        return Finding(title, "bad", f"damaged: {names}", f"rm -r {jar_set.folder} && {fetch}")
    return Finding(title, "ok", f"{len(jar_set.artifacts)} jars, {format_bytes(jar_set.size())}, checksums right")


def _ports() -> Finding:
    try:
        port = free_port()
    except OSError as error:
        return Finding("ports", "bad", f"cannot listen on 127.0.0.1: {error}", "check firewall and container settings")
    return Finding("ports", "ok", f"127.0.0.1 has free ones (such as {port})")


def _disk() -> Finding:
    free = {folder: shutil.disk_usage(_existing(folder)).free for folder in (CACHE.value(), Path.cwd())}
    folder, least = min(free.items(), key=lambda item: item[1])
    text = f"{format_bytes(least)} free for {folder}"
    if least < _DISK:
        return Finding("disk", "warn", text, f"free some space, or set {CACHE.variable} and {KAFKA_DATA.variable}")
    return Finding("disk", "ok", text)


def _memory() -> Finding:
    free = psutil.virtual_memory().available
    text = f"{format_bytes(free)} available"
    if free < _MEMORY:
        return Finding("memory", "warn", text, "close something; Spark and one broker want about 2 GB")
    return Finding("memory", "ok", text)


def _kafka() -> Finding:
    outside = KAFKA.value()
    if outside:
        cluster = Cluster.at(outside, KAFKA_CONFIG.value(), min(5.0, KAFKA_TIMEOUT.value()), environment=True)
        return Finding("Kafka", "ok", f"{len(cluster.connect().brokers)} broker(s) answer at {outside}")
    layout = kafka.running(KAFKA_DATA.value())
    if layout is None:
        return Finding("Kafka", "ok", "none runs here and none is set", "millrace kafka up")
    brokers = len(kafka.cluster_of(KAFKA_DATA.value(), layout).connect().brokers)
    return Finding("Kafka", "ok", f"ours runs at {layout.address} ({brokers} broker(s))")


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return folder if folder.exists() else _existing(folder.parent)


_CHECKS: dict[str, Callable[[], Finding]] = {
    "Java": _java,
    "Python": _python,
    "PySpark": _pyspark,
    **{f"jars: {name}": partial(_jar_set, name) for name in jars.jar_sets()},
    "ports": _ports,
    "disk": _disk,
    "memory": _memory,
    "Kafka": _kafka,
}
