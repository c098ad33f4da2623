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
"""A word or a number, which texts have for other reasons too; to hide it everywhere would tell it, and break them."""
_USERINFO = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_NAMED = re.compile(
    r"(?i)((?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{32,}")

_INSIDE = re.compile(
    r"(?i)://[^/\s:@]*:([^/\s@]+)@|(?:password|passwd|passphrase|pwd|secret|token)=[\"']?([^\"'\s,;&)]+)"
)


class _SecretRegistry:
    """The secrets that are known, in every form, the longest first: one may be a part of another."""

    texts: tuple[str, ...] = ()
    encoded: tuple[bytes, ...] = ()
    writing = threading.Lock()


def register_secret(value: str) -> None:
    """From now on a value is not shown, in any of the forms that texts may have it in."""
    if value in _SecretRegistry.texts or not _is_telling(value):
        return
    with _SecretRegistry.writing:
        texts = tuple(sorted({*_SecretRegistry.texts, value, *_forms(value)}, key=len, reverse=True))
        _SecretRegistry.texts, _SecretRegistry.encoded = (
            texts,
            tuple(one.encode("utf-8", "surrogatepass") for one in texts),
        )


def without_secrets(text: str) -> str:
    """A text without the secrets that are known."""
    for secret in _SecretRegistry.texts:
        if secret in text:
            text = text.replace(secret, MASK)
    return text


def bytes_without_secrets(text: bytes) -> bytes:
    """The same for text that is encoded already."""
    for secret in _SecretRegistry.encoded:
        if secret in text:
            text = text.replace(secret, MASK.encode())
    return text


def without_passwords(text: str) -> str:
    """The same, and without the passwords of addresses, known or not."""
    return _USERINFO.sub(rf"\1{MASK}@", without_secrets(text))


def masked(text: str) -> str:
    """The same, and without whatever stands after `password=` and its like: for texts that others wrote."""
    return _NAMED.sub(rf"\1{MASK}", without_passwords(text))


def _is_telling(value: str) -> bool:
    return len(value) >= _SHORTEST and not _COMMON.fullmatch(value)


def _forms(value: str) -> Iterator[str]:
    """How it looks within JSON, a Python literal, a URL and an HTTP header; and the secret parts that it has itself."""
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], str.__repr__(value)[1:-1])
    yield quote(value, safe="")
    yield b64encode(value.encode("utf-8", "surrogatepass")).decode()
    yield from filter(_is_telling, (part for found in _INSIDE.findall(value) for part in found))
    if "PRIVATE KEY" in value:
        yield from _KEY_LINE.findall(value)
