"""A look at why TLS with a broker fails: Kafka's clients say only that it does, Python's own TLS says what is wrong."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit

_PATIENCE = 2.0
_NUMBER = b"mill"
_QUESTION = b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + _NUMBER + b"\xff\xff"
"""ApiVersions, version 0: its length, what is asked, a number that the answer has too, no name."""
_ANSWER = 0.5
"""Seconds in which a broker says that it does not take our certificate."""


class Trouble(Enum):
    """What can be wrong."""

    EXPIRED = auto()
    HOST = auto()
    AUTHORITY = auto()
    NO_TLS = auto()
    WANTS_TLS = auto()
    WANTS_CERTIFICATE = auto()
    CERTIFICATE_REFUSED = auto()


@dataclass(frozen=True)
class Seen:
    """What is wrong with TLS at an address, and in whose words."""

    trouble: Trouble
    why: str


def look(address: str, options: Mapping[str, str]) -> Seen | None:
    """What is wrong with TLS at HOST:PORT for a client with these properties; None when nothing is, or nobody is."""
    parts = urlsplit(f"//{address}")
    place = (parts.hostname or "", parts.port or 0)
    wanted = options.get("security.protocol", "PLAINTEXT").upper().endswith("SSL")
    try:
        context = _context(options) if wanted else _trusting()
        with socket.create_connection(place, _PATIENCE) as plain:
            seen = _greeted(plain, context, place[0], wanted)
        if seen and seen.trouble is Trouble.CERTIFICATE_REFUSED and "ssl.certificate.location" not in options:
            return Seen(Trouble.WANTS_CERTIFICATE, "it asks for one, and none was sent")
        # A broker that is going away closes connections too: only one that speaks Kafka plainly has no TLS.
        if wanted and seen is None and _speaks_plainly(place):
            return Seen(Trouble.NO_TLS, "it answers Kafka's requests without TLS")
    except OSError:
        return None
    return seen


def _greeted(plain: socket.socket, context: ssl.SSLContext, host: str, wanted: bool) -> Seen | None:
    try:
        with context.wrap_socket(plain, server_hostname=host) as tls:
            return _after(tls) if wanted else Seen(Trouble.WANTS_TLS, f"it answers in {tls.version()}")
    except ssl.SSLCertVerificationError as error:
        return _unverified(error)
    except OSError as error:
        return _refused(error) if wanted else None


def _speaks_plainly(place: tuple[str, int]) -> bool:
    """Whether a question of Kafka's protocol (which versions it knows) is answered as it is."""
    with socket.create_connection(place, _PATIENCE) as plain:
        plain.settimeout(_PATIENCE)
        plain.sendall(_QUESTION)
        answer = plain.recv(8)
    return answer[4:8] == _NUMBER


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    authority = options.get("ssl.ca.location")
    context = ssl.create_default_context(
        cafile=None if authority == "probe" else authority, cadata=options.get("ssl.ca.pem")
    )
    if options.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if "ssl.certificate.location" in options:
        secret = options.get("ssl.key.password", "")
        context.load_cert_chain(options["ssl.certificate.location"], options.get("ssl.key.location"), secret)
    return context


def _trusting() -> ssl.SSLContext:
    """Only asks whether TLS is spoken; nothing is sent through it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _after(tls: ssl.SSLSocket) -> Seen | None:
    """A broker tells only after the handshake that it wants another certificate."""
    tls.settimeout(_ANSWER)
    try:
        with suppress(TimeoutError):
            tls.recv(1)
    except ssl.SSLError as error:
        return _refused(error)
    except OSError:
        return None
    return None


def _unverified(error: ssl.SSLCertVerificationError) -> Seen:
    said = error.verify_message
    if "expired" in said or "not yet valid" in said:
        return Seen(Trouble.EXPIRED, said)
    if "mismatch" in said:
        return Seen(Trouble.HOST, said)
    return Seen(Trouble.AUTHORITY, said)


def _refused(error: OSError) -> Seen | None:
    text = str(error).lower()
    if "alert" in text and any(word in text for word in ("certificate", "unknown_ca", "unknown ca")):
        return Seen(Trouble.CERTIFICATE_REFUSED, _last_words(str(error)))
    return None


def _last_words(text: str) -> str:
    return text.rpartition("] ")[2].partition(" (_ssl")[0]
