"""A real agent of Apache Flume, from artifacts that are pinned in tests/jars.toml: no user fetches them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millrace.services import jars
from millrace.services.java import find_java

PINNED = Path(__file__).with_name("jars.toml")


@contextmanager
def flume_agent(configuration: str, folder: Path, changes: Mapping[str, str] | None = None) -> Iterator[Path]:
    """An agent for the time of a block; gives its log. `changes` are made in the configuration."""
    flume = jars.sets_in(PINNED.read_text("utf-8"))["flume"]
    if not flume.present():
        jars.fetch(flume)
    for old, new in (changes or {}).items():
        assert old in configuration, old
        configuration = configuration.replace(old, new)
    (folder / "agent.conf").write_text(configuration, "utf-8")
    log = folder / "agent.log"
    command = [find_java().path, "-Xmx128m", "-cp", flume.classpath(), "org.apache.flume.node.Application"]
    with log.open("wb") as out:
        agent = subprocess.Popen(
            [*command, "--name", "agent", "--conf-file", folder / "agent.conf"], stdout=out, stderr=out
        )
    try:
        yield log
    finally:
        agent.terminate()
        agent.wait(30)
