"""Properties and addresses of clients.

- Client properties are read from a file and from the environment, with secrets from variables and files.
- `java_file` writes properties as Java reads them.
- Addresses are HOST:PORT, several separated by commas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from millrace.errors import FileUnusable, InvalidOption, SourceLocation
from millrace.limited_files import read_limited_text
from millrace.pipeline.interpolation import fill
from millrace.pipeline.secret import Secret, holds_password, is_secret
from millrace.secret_files import SUFFIX, exposure_warning, read_secret

Notify = Callable[[str], None]
"""Called with a sentence when others can read a secret."""

_JAVA_NAMES = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret",
    **{
        f"ssl.truststore.{name}": "ssl.ca.location, a PEM file"
        for name in ("location", "password", "type", "certificates")
    },
    "ssl.keystore.type": "ssl.certificate.location and ssl.key.location",
    "ssl.keystore.key": "ssl.key.location, a PEM file",
    "ssl.keystore.certificate.chain": "ssl.certificate.location, a PEM file",
}


def client_properties(
    config: Path | None, prefix: str | None, is_known: Callable[[str], bool], notify: Notify
) -> dict[str, str]:
    """Return the properties of a file, if one is named, and of variables with a prefix, which win over it."""
    properties = read_properties(config, notify) if config else {}
    return properties | (environment_properties(prefix, is_known, notify) if prefix else {})


def read_properties(path: Path, notify: Notify = lambda _: None) -> dict[str, str]:
    """Return the client properties of a file: `key=value` lines, `#` comments, `${NAME}` and `${file:PATH}`."""
    try:
        lines = read_limited_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnusable(f"cannot read the client properties in {path}", why=str(error)) from None
    properties: dict[str, str] = {}
    secret_files: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        place = SourceLocation(str(path), number)
        if not equals:
            raise InvalidOption("a line of client properties has no '='", place=place, hint="write key=value")
        if key in _JAVA_NAMES:
            hint = f"use {_JAVA_NAMES[key]} instead"
            raise InvalidOption(f"{key} is a property of Java clients", place=place, hint=hint)
        properties[key], files = _value(key, value, place)
        if isinstance(properties[key], Secret) and "${" not in value:
            files = (*files, str(path))
        secret_files |= dict.fromkeys(files)
    _warn_if_readable(secret_files, notify)
    return properties


def environment_properties(prefix: str, is_known: Callable[[str], bool], notify: Notify) -> dict[str, str]:
    """Return the client properties in the environment: PREFIX_SASL_PASSWORD is sasl.password, if that is known.

    With _FILE after it the variable names the file that holds the value.
    """
    properties: dict[str, str] = {}
    secret_files: dict[str, None] = {}
    for variable, value in sorted(os.environ.items()):
        name = _property(variable, prefix)
        if not name or not value:
            continue
        name_in_file = _property(variable.removesuffix(SUFFIX), prefix)
        if name_in_file != name and is_known(name_in_file) and _may_be_in_a_file(name_in_file):
            properties.setdefault(name_in_file, Secret(read_secret(value)))
            secret_files[value] = None
        elif is_known(name):
            properties[name] = Secret(value) if is_secret(name) or holds_password(value) else value
    _warn_if_readable(secret_files, notify)
    return properties


def _property(variable: str, prefix: str) -> str:
    return variable.removeprefix(prefix).lower().replace("_", ".") if variable.startswith(prefix) else ""


def _may_be_in_a_file(name: str) -> bool:
    """Return whether NAME_FILE names a file; librdkafka has a few properties of its own that end so."""
    return (is_secret(name) or name.endswith(("user", "username"))) and "assertion" not in name


def java_file(properties: Mapping[str, str]) -> str:
    """Return the content of a Java properties file: ASCII, special characters escaped."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _warn_if_readable(files: Iterable[str], notify: Notify) -> None:
    for file in files:
        if sentence := exposure_warning(file):
            notify(sentence)


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def _value(key: str, text: str, place: SourceLocation) -> tuple[str, tuple[str, ...]]:
    """Return the value of a line, with its references replaced, and the files that were read for it."""
    filled = fill(text, os.environ)
    for name in filled.missing:
        raise InvalidOption(f"the environment variable {name} is not set", place=place, hint=f"export {name}=…")
    for error in filled.unusable:
        raise FileUnusable(error.message, place=place, why=error.why, hint=error.hint)
    if filled.files or is_secret(key) or holds_password(filled.text):
        return Secret(filled.text), tuple(filled.files)
    return filled.text, ()


_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+)(?::(\d{1,5}))?")


def host_ports(addresses: str, system: str, default_port: int | None = None) -> list[tuple[str, int]]:
    """Return the hosts and ports of some addresses; raise InvalidOption, naming the system, if one is not valid."""
    pairs = []
    for address in map(str.strip, addresses.split(",")):
        match = _ADDRESS.fullmatch(address)
        port = int((match and match[2]) or default_port or 0)
        if not match or not 0 < port < 65536:
            hint = "write HOST:PORT, several separated by commas"
            raise InvalidOption(f"{address!r} is not an address of {system}", hint=hint)
        pairs.append((match[1].strip("[]"), port))
    return pairs


def tidy_addresses(addresses: str, system: str, default_port: int | None = None) -> str:
    """Return the addresses without blanks; raise InvalidOption if one is not valid."""
    host_ports(addresses, system, default_port)
    return ",".join(map(str.strip, addresses.split(",")))
