"""TLS and passwords for connections of our own to brokers, by the properties that librdkafka's clients have.

- `unsupported_access` says why bulk reading cannot use a cluster's properties; Spark's own source reads then.
- `tls_context` makes the TLS settings.
- `Sasl` proves who we are, by PLAIN or SCRAM.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from millrace.clients.kafka.security import is_access

_SUPPORTED = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
    }
)
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS = 4096
"""Fewer would give a server that pretends to be the broker a chance to find out the password."""
_MAX_ITERATIONS = 1_000_000
"""librdkafka's limit, half a second of CPU: a server must not keep us busy. Kafka stores at most 16,384."""
_NO_SCRAM = "the broker's answer is not one of SCRAM"


class AuthenticationFailed(Exception):
    """The broker refuses us, or does not know the password itself."""


def unsupported_access(properties: Mapping[str, str]) -> str:
    """Return which of a cluster's properties of access bulk reading does not know; empty if it knows all."""
    mechanism = properties.get("sasl.mechanism", "PLAIN")
    if mechanism != "PLAIN" and mechanism not in _HASHES:
        return f"sasl.mechanism {mechanism}"
    return next((name for name in sorted(properties) if is_access(name) and name not in _SUPPORTED), "")


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the settings for TLS; None if the cluster wants none."""
    if "SSL" not in properties.get("security.protocol", "PLAINTEXT").upper():
        return None
    location, inline = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
    file = location if location != "probe" and not inline else None
    context = ssl.create_default_context(cafile=file, cadata=inline)
    # Python 3.13 sets it: it refuses authorities made by `openssl req -x509`, which Java and librdkafka take.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"
    if certificate := properties.get("ssl.certificate.location"):
        password = properties.get("ssl.key.password", "")
        context.load_cert_chain(certificate, properties.get("ssl.key.location"), lambda: password)
    if ciphers := properties.get("ssl.cipher.suites"):
        context.set_ciphers(ciphers.replace(",", ":"))
    return context


@dataclass(frozen=True)
class Sasl:
    """A user and a password, and how they are proved."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Sasl | None:
        """Return what a cluster's properties have; None if it wants no password."""
        if "SASL" not in properties.get("security.protocol", "PLAINTEXT").upper():
            return None
        return cls(properties["sasl.mechanism"], properties["sasl.username"], properties["sasl.password"])

    def authenticate(self, exchange: Callable[[bytes], bytes]) -> None:
        """Send messages and take the answers of the broker; raise AuthenticationFailed if it is an impostor."""
        if self.mechanism == "PLAIN":
            exchange(b"\0".join([b"", self.user.encode(), self.password.encode()]))
            return
        conversation = self._scram(secrets.token_urlsafe(24))
        message = next(conversation)
        while message is not None:
            answer = exchange(message)
            try:
                message = conversation.send(answer)
            except (KeyError, TypeError, ValueError) as error:
                raise AuthenticationFailed(_NO_SCRAM) from error

    def _scram(self, nonce: str) -> Generator[bytes | None, bytes, None]:
        """Yield the messages of SCRAM (RFC 5802) and take the answers."""
        hash_name = _HASHES[self.mechanism]
        user = self.user.replace("=", "=3D").replace(",", "=2C")
        begin = f"n={user},r={nonce}"
        answer = (yield f"n,,{begin}".encode()).decode()
        given = _fields(answer)
        iterations = int(given["i"])
        if not given["r"].startswith(nonce) or not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise AuthenticationFailed(_NO_SCRAM)
        salted = hashlib.pbkdf2_hmac(hash_name, self.password.encode(), base64.b64decode(given["s"]), iterations)

        def signed(key: bytes, text: bytes) -> bytes:
            return hmac.new(key, text, hash_name).digest()

        client_key = signed(salted, b"Client Key")
        unproved = f"c=biws,r={given['r']}"
        whole = f"{begin},{answer},{unproved}".encode()
        signature = signed(hashlib.new(hash_name, client_key).digest(), whole)
        proof = bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))
        final = _fields((yield f"{unproved},p={base64.b64encode(proof).decode()}".encode()).decode())
        expected = base64.b64encode(signed(signed(salted, b"Server Key"), whole)).decode()
        if not hmac.compare_digest(final.get("v", ""), expected):
            raise AuthenticationFailed(final.get("e") or "the broker does not know the password itself")
        yield None


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}
