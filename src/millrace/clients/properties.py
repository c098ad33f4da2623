"""Files of properties: those of clients, as users write them, and those that Java reads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from millrace.errors import FileUnusable, InvalidOption, Place

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_JAVA_NAMES = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file",
    "ssl.truststore.type": "ssl.ca.location, a PEM file",
    "ssl.keystore.type": "ssl.certificate.location and ssl.key.location",
}


def read_properties(path: Path) -> dict[str, str]:
    """The client properties of a file: `key=value` lines, `#` comments, `${NAME}` from the environment."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnusable(f"cannot read the client properties in {path}", why=str(error)) from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        place = Place(str(path), number)
        if not equals:
            raise InvalidOption("a line of client properties has no '='", place=place, hint="write key=value")
        if key in _JAVA_NAMES:
            raise InvalidOption(
                f"{key} is a property of Java clients", place=place, hint=f"use {_JAVA_NAMES[key]} instead"
            )
        found[key] = _with_variables(value, place)
    return found


def java_file(properties: Mapping[str, str]) -> str:
    """Properties as a file that Java reads: ASCII, with what is special escaped."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def _with_variables(value: str, place: Place) -> str:
    return _VARIABLE.sub(lambda match: _from_environment(match[1], place), value)


def _from_environment(name: str, place: Place) -> str:
    if name not in os.environ:
        raise InvalidOption(f"the environment variable {name} is not set", place=place, hint=f"export {name}=…")
    return os.environ[name]
