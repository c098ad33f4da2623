"""Values that are used and never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from millrace.errors import InvalidDefinition
from millrace.masking import MASK, register_secret
from millrace.secret_files import read_secret, read_variable_or_file

_WORDS = frozenset({"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "jaas"})
_KEYS = frozenset({"api", "access", "private", "account", "secret", "shared", "keystore"})
_URL = re.compile(
    r"[a-z][a-z0-9+.:-]*://([^/\s:@]*:[^/\s@]+@|[^\s]*[?&;(][\w.-]*(password|passwd|pwd|secret|token|api_?key)=[^&;)\s])"
    r"|jdbc:oracle:\w+:[^/\s@]+/[^@\s]+@",
    re.IGNORECASE,
)


class Secret(str):
    """Text that its repr does not show and that is masked wherever it turns up; to Spark and Kafka it is text."""

    __slots__ = ()

    def __new__(cls, text: str = "") -> Secret:
        """One more value that is not to be seen; also when it arrives in another process."""
        register_secret(text)
        return super().__new__(cls, text)

    def __repr__(self) -> str:
        return "'***'"


def secret(name: str | None = None, /, *, file: str | os.PathLike[str] | None = None) -> Secret:
    """A secret for a pipeline in Python: of an environment variable (or of the file that NAME_FILE names), or a file's.

    What it gives is text that is used and never shown, whatever the option that takes it is called.
    """
    if (name is None) == (file is None):
        raise InvalidDefinition("a secret has one origin", hint='mr.secret("NAME"), or mr.secret(file="/path")')
    if file is not None:
        return Secret(read_secret(os.fspath(file)))
    value = read_variable_or_file(str(name), os.environ)
    if value is None:
        hint = f"export {name}=…, or {name}_FILE with the path of a file that holds it"
        raise InvalidDefinition(f"the environment variable {name} is not set", hint=hint)
    return Secret(value)


def is_secret(name: str) -> bool:
    """Whether an option's name says that its value is a secret: `sasl.password`, `apiKey`, `access_token`."""
    lower = [word.lower() for word in re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*", name)]
    if not _WORDS.isdisjoint(lower) or "apikey" in lower:
        # A path to a secret is none: ssl.keystore.location, token_file.
        return lower[-1] not in ("location", "path", "file", "url", "endpoint", "type")
    pairs = list(pairwise(lower))
    return ("key", "pem") in pairs or any(first in _KEYS and second == "key" for first, second in pairs)


def holds_password(value: Any) -> bool:
    """Whether a text has a user's password inside: `https://me:password@host`, `jdbc:…?password=…`."""
    return isinstance(value, str) and bool(_URL.match(value))


def shown(name: str, value: str) -> str:
    """The value of a setting or an option as it may be seen."""
    return MASK if isinstance(value, Secret) or is_secret(name) or holds_password(value) else value


def guarded(name: str, value: Any) -> Any:
    """A value with its secrets made unprintable, all the way down."""
    if isinstance(value, Mapping):
        return {key: guarded(str(key) if not is_secret(name) else name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [guarded(name, item) for item in value]
    if isinstance(value, str) and not isinstance(value, Secret) and (is_secret(name) or holds_password(value)):
        return Secret(value)
    return value
