"""Properties of clients, from files and from the environment as users write them, and in a file that Java reads.

Addresses of servers: HOST:PORT, several separated by commas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from millrace.errors import FileUnusable, InvalidOption, SourceLocation
from millrace.limited_files import read_limited_text
from millrace.pipeline.interpolation import fill
from millrace.pipeline.secret import Secret, holds_password, is_secret
from millrace.secret_files import SUFFIX, exposed, read_secret

Tell = Callable[[str], None]

_JAVA_NAMES = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file",
    "ssl.truststore.type": "ssl.ca.location, a PEM file",
    "ssl.truststore.certificates": "ssl.ca.location, a PEM file",
    "ssl.keystore.type": "ssl.certificate.location and ssl.key.location",
    "ssl.keystore.key": "ssl.key.location, a PEM file",
    "ssl.keystore.certificate.chain": "ssl.certificate.location, a PEM file",
}


def read_properties(path: Path, tell: Tell = lambda _: None) -> dict[str, str]:
    """The client properties of a file: `key=value` lines, `#` comments, `${NAME}` and `${file:PATH}` in values.

    `tell` takes a sentence when others can read a secret.
    """
    try:
        lines = read_limited_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnusable(f"cannot read the client properties in {path}", why=str(error)) from None
    found: dict[str, str] = {}
    open_to_all: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        place = SourceLocation(str(path), number)
        if not equals:
            raise InvalidOption("a line of client properties has no '='", place=place, hint="write key=value")
        if key in _JAVA_NAMES:
            raise InvalidOption(
                f"{key} is a property of Java clients", place=place, hint=f"use {_JAVA_NAMES[key]} instead"
            )
        found[key], read = _value(key, value, place)
        secret_here = isinstance(found[key], Secret) and "${" not in value
        open_to_all |= dict.fromkeys([*read, *([str(path)] if secret_here else [])])
    _warn(open_to_all, tell)
    return found


def environment_properties(prefix: str, known: Callable[[str], bool], tell: Tell = lambda _: None) -> dict[str, str]:
    """The client properties in the environment: PREFIX_SASL_PASSWORD is sasl.password, if that is a `known` name.

    With _FILE after it the variable names the file that holds the value.
    """
    found: dict[str, str] = {}
    files: dict[str, None] = {}
    for variable, value in sorted(os.environ.items()):
        name = _property(variable, prefix)
        if not name or not value:
            continue
        if (plain := _property(variable.removesuffix(SUFFIX), prefix)) != name and known(plain) and _in_a_file(plain):
            found.setdefault(plain, Secret(read_secret(value)))
            files[value] = None
        elif known(name):
            found[name] = Secret(value) if is_secret(name) or holds_password(value) else value
    _warn(files, tell)
    return found


def _property(variable: str, prefix: str) -> str:
    return variable.removeprefix(prefix).lower().replace("_", ".") if variable.startswith(prefix) else ""


def _in_a_file(name: str) -> bool:
    """Whether a property's value may lie in a file; librdkafka has a few of its own that are named so."""
    return (is_secret(name) or name.endswith(("user", "username"))) and "assertion" not in name


def java_file(properties: Mapping[str, str]) -> str:
    """Properties as a file that Java reads: ASCII, with what is special escaped."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _warn(files: Mapping[str, None], tell: Tell) -> None:
    for file in files:
        if sentence := exposed(file):
            tell(sentence)


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def _value(key: str, text: str, place: SourceLocation) -> tuple[str, tuple[str, ...]]:
    """What a line's value stands for, and the files that were read for it."""
    filled = fill(text, os.environ)
    for name in filled.missing:
        raise InvalidOption(f"the environment variable {name} is not set", place=place, hint=f"export {name}=…")
    for error in filled.unusable:
        raise FileUnusable(error.message, place=place, why=error.why, hint=error.hint)
    if filled.files or is_secret(key) or holds_password(filled.text):
        return Secret(filled.text), filled.files
    return filled.text, ()


_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+)(?::(\d{1,5}))?")


def host_ports(addresses: str, what: str, port: int | None = None) -> list[tuple[str, int]]:
    """The hosts and ports; one without a port has the usual one, where there is such. `what` would be there."""
    return [_point(one.strip(), what, port) for one in addresses.split(",")]


def tidy_addresses(addresses: str, what: str, port: int | None = None) -> str:
    """The same without blanks; raises when one is no address."""
    host_ports(addresses, what, port)
    return ",".join(one.strip() for one in addresses.split(","))


def _point(address: str, what: str, port: int | None) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address)
    number = int((found and found[2]) or port or 0)
    if not found or not 0 < number < 65536:
        raise InvalidOption(
            f"{address!r} is not an address of {what}", hint="write HOST:PORT, several separated by commas"
        )
    return found[1].strip("[]"), number
