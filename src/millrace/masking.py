"""Secrets as they must not be seen: every value that is known to be one is taken out of what is shown or written."""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote

MASK = "***"
_SHORTEST = 6
_COMMON = re.compile(r"[A-Za-z]{1,10}|[\d.+-]*")
"""A common word or number: to mask it everywhere would reveal it, and break texts."""
_USERINFO = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_NAMED = re.compile(
    r"(?i)((?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{32,}")

_INSIDE = re.compile(
    r"(?i)://[^/\s:@]*:([^/\s@]+)@|(?:password|passwd|passphrase|pwd|secret|token)=[\"']?([^\"'\s,;&)]+)"
)


class _SecretRegistry:
    """The registered secrets, in every form, the longest first: one may be part of another."""

    texts: tuple[str, ...] = ()
    encoded: tuple[bytes, ...] = ()
    writing = threading.Lock()


def register_secret(value: str) -> None:
    """Register a secret, in all forms that it may have in texts."""
    if value in _SecretRegistry.texts or not _is_telling(value):
        return
    with _SecretRegistry.writing:
        texts = tuple(sorted({*_SecretRegistry.texts, value, *_forms(value)}, key=len, reverse=True))
        _SecretRegistry.encoded = tuple(text.encode("utf-8", "surrogatepass") for text in texts)
        _SecretRegistry.texts = texts


def without_secrets(text: str) -> str:
    """Return a text without the registered secrets."""
    for secret in _SecretRegistry.texts:
        text = text.replace(secret, MASK)
    return text


def bytes_without_secrets(text: bytes) -> bytes:
    """Return the same for encoded text."""
    for secret in _SecretRegistry.encoded:
        text = text.replace(secret, MASK.encode())
    return text


def without_passwords(text: str) -> str:
    """Return the same, also without the passwords in URLs."""
    return _USERINFO.sub(rf"\1{MASK}@", without_secrets(text))


def masked(text: str) -> str:
    """Return the same, also without the values after `password=` and similar names: for texts of other programs."""
    return _NAMED.sub(rf"\1{MASK}", without_passwords(text))


def _is_telling(value: str) -> bool:
    return len(value) >= _SHORTEST and not _COMMON.fullmatch(value)


def _forms(value: str) -> Iterator[str]:
    """Yield the forms of a secret in JSON, a Python literal, a URL and an HTTP header, and the secrets within it."""
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], str.__repr__(value)[1:-1])
    yield quote(value, safe="")
    yield b64encode(value.encode("utf-8", "surrogatepass")).decode()
    yield from filter(_is_telling, (part for groups in _INSIDE.findall(value) for part in groups))
    if "PRIVATE KEY" in value:
        yield from _KEY_LINE.findall(value)
