"""Values that are used and never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

_WORDS = frozenset({"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "jaas"})
_KEYS = frozenset({"api", "access", "private", "account", "secret", "shared"})
_URL = re.compile(
    r"[a-z][a-z0-9+.:-]*://([^/\s:@]*:[^/\s@]+@|[^\s]*[?&;](password|pwd|access_token)=[^&;\s])", re.IGNORECASE
)

_SPOKEN = (
    (re.compile(r"(://[^/\s:@]*:)[^/\s@]+@"), r"\1***@"),
    (
        re.compile(
            r"(?i)((?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
        ),
        r"\1***",
    ),
)


class Secret(str):
    """Text that its repr does not show; to Spark and to Kafka it is the text that it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def is_secret(name: str) -> bool:
    """Whether an option's name says that its value is a secret: `sasl.password`, `apiKey`, `access_token`."""
    words = re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*", name)
    lower = [word.lower() for word in words]
    if not _WORDS.isdisjoint(lower) or "apikey" in lower:
        # A path to a secret is none: ssl.keystore.location, token_file.
        return lower[-1] not in ("location", "path", "file", "url", "endpoint", "type")
    return any(first in _KEYS and second == "key" for first, second in pairwise(lower))


def holds_password(value: Any) -> bool:
    """Whether a text has a user's password inside: `https://me:password@host`, `jdbc:…?password=…`."""
    return isinstance(value, str) and bool(_URL.match(value))


def guarded(name: str, value: Any) -> Any:
    """A value with its secrets made unprintable, all the way down."""
    if isinstance(value, Mapping):
        return {key: guarded(str(key) if not is_secret(name) else name, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [guarded(name, one) for one in value]
    if isinstance(value, str) and not isinstance(value, Secret) and (is_secret(name) or holds_password(value)):
        return Secret(value)
    return value


def masked(text: str) -> str:
    """A text without the passwords that its writer may have left in it: of addresses, and after `password=`."""
    for pattern, instead in _SPOKEN:
        text = pattern.sub(instead, text)
    return text
