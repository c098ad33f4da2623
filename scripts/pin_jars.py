"""Pins a jar set: prints the [NAME] tables of jars.toml for Maven coordinates, with the SHA-256 of each jar.

    python scripts/pin_jars.py kafka "The broker" org.apache.kafka:kafka_2.13:4.3.1 …

What is named is taken as it is. With --transitive, what it depends on is added first; look at the list before
it is committed. Jars with a classifier (native code for some system) are left out. The bytes are those of the
mirror in use: compare with another source when it matters.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import tempfile
from pathlib import Path

from millrace.services.jars import _ivy_jar


def main() -> None:
    """Fetch with Ivy into a temporary folder and print what came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("about")
    parser.add_argument("coordinates", nargs="+", help="group:artifact:version")
    parser.add_argument("--transitive", action="store_true")
    parser.add_argument("--exclude", action="append", default=[], metavar="ARTIFACT")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jars = retrieve(Path(folder), given.coordinates, given.transitive)
        print(f'[{given.name}]\nabout = "{given.about}"\n\n[{given.name}.jars]')
        for path in sorted(jars):
            group, artifact, version, *classifier = path.stem.split("@")
            if artifact not in given.exclude and not classifier:
                print(f'"{group}:{artifact}:{version}" = "{hashlib.sha256(path.read_bytes()).hexdigest()}"')


def retrieve(folder: Path, coordinates: list[str], transitive: bool) -> list[Path]:
    """The jars, in files named group@artifact@version.jar, or group@artifact@version@classifier.jar."""
    wanted = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default" transitive="{}"/>'.format(
            *one.split(":"), "true" if transitive else "false"
        )
        for one in coordinates
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="pin" module="pin"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{wanted}</dependencies></ivy-module>"
    )
    command = ["java", "-jar", _ivy_jar(), "-ivy", folder / "ivy.xml", "-cache", folder / "cache"]
    pattern = f"{folder}/lib/[organisation]@[artifact]@[revision](@[classifier]).[ext]"
    subprocess.run([*command, "-types", "jar", "bundle", "-retrieve", pattern], check=True, stdout=subprocess.DEVNULL)
    return list((folder / "lib").glob("*.jar"))


if __name__ == "__main__":
    main()
