"""Why a Kafka cluster does not let us in, in one sentence: whatever client says so, and in whatever words.

A look at why TLS with a broker fails: Kafka's clients say only that it does, Python's own TLS says what is wrong.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit

from millrace.errors import AccessDenied, KafkaUnreachable, MillraceError

_PATIENCE = 2.0
_NUMBER = b"mill"
_QUESTION = b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + _NUMBER + b"\xff\xff"
"""ApiVersions, version 0: its length, what is asked, a number that the answer has too, no name."""
_ANSWER = 0.5
"""Seconds in which a broker says that it does not take our certificate."""


class ProblemKind(Enum):
    """What can be wrong."""

    EXPIRED = auto()
    HOST = auto()
    AUTHORITY = auto()
    NO_TLS = auto()
    WANTS_TLS = auto()
    WANTS_CERTIFICATE = auto()
    CERTIFICATE_REFUSED = auto()


@dataclass(frozen=True)
class TlsProblem:
    """What is wrong with TLS at an address, and in whose words."""

    trouble: ProblemKind
    why: str


def tls_problem(address: str, options: Mapping[str, str]) -> TlsProblem | None:
    """What is wrong with TLS at HOST:PORT for a client with these properties; None when nothing is, or nobody is."""
    parts = urlsplit(f"//{address}")
    place = (parts.hostname or "", parts.port or 0)
    wanted = options.get("security.protocol", "PLAINTEXT").upper().endswith("SSL")
    try:
        context = _context(options) if wanted else _trusting()
        with socket.create_connection(place, _PATIENCE) as connection:
            seen = _greeted(connection, context, place[0], wanted)
        if seen and seen.trouble is ProblemKind.CERTIFICATE_REFUSED and "ssl.certificate.location" not in options:
            return TlsProblem(ProblemKind.WANTS_CERTIFICATE, "it asks for one, and none was sent")
        # A broker that is going away closes connections too: only one that speaks Kafka plainly has no TLS.
        if wanted and seen is None and _speaks_plainly(place):
            return TlsProblem(ProblemKind.NO_TLS, "it answers Kafka's requests without TLS")
    except OSError:
        return None
    return seen


def _greeted(connection: socket.socket, context: ssl.SSLContext, host: str, wanted: bool) -> TlsProblem | None:
    try:
        with context.wrap_socket(connection, server_hostname=host) as tls:
            return _after(tls) if wanted else TlsProblem(ProblemKind.WANTS_TLS, f"it answers in {tls.version()}")
    except ssl.SSLCertVerificationError as error:
        return _unverified(error)
    except OSError as error:
        return _refused(error) if wanted else None


def _speaks_plainly(place: tuple[str, int]) -> bool:
    """Whether a question of Kafka's protocol (which versions it knows) is answered as it is."""
    with socket.create_connection(place, _PATIENCE) as connection:
        connection.settimeout(_PATIENCE)
        connection.sendall(_QUESTION)
        answer = connection.recv(8)
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


def _after(tls: ssl.SSLSocket) -> TlsProblem | None:
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


def _unverified(error: ssl.SSLCertVerificationError) -> TlsProblem:
    said = error.verify_message
    if "expired" in said or "not yet valid" in said:
        return TlsProblem(ProblemKind.EXPIRED, said)
    if "mismatch" in said:
        return TlsProblem(ProblemKind.HOST, said)
    return TlsProblem(ProblemKind.AUTHORITY, said)


def _refused(error: OSError) -> TlsProblem | None:
    text = str(error).lower()
    if "alert" in text and any(word in text for word in ("certificate", "unknown_ca", "unknown ca")):
        return TlsProblem(ProblemKind.CERTIFICATE_REFUSED, _last_words(str(error)))
    return None


def _last_words(text: str) -> str:
    return text.rpartition("] ")[2].partition(" (_ssl")[0]


_PLACE = re.compile(r"(?:sasl_|_)?(?:ssl|plaintext)(?:://)([\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+)/")
_TLS = re.compile(r"(?i)\bssl\b|tls|certificate|handshake|disconnect|invalid response size|parse error|InvalidReceive")
_TOKEN = re.compile(r"(?i)OIDC|(?:retrieve|acquire) .*token|token endpoint|OAuthBearerLogin|JwtRetriever|AccessToken")
_REFUSED = re.compile(r"(?i)\(4\d\d\)|(?:code|status)\D{0,10}4\d\d|invalid_|unauthorized")
_MECHANISM = re.compile(r"(?i)unsupported ?sasl ?mechanism|not enabled in the server|enabled mechanisms are")
_LOGIN = re.compile(
    r"(?i)invalid username or password|invalid credentials|authentication failed|SaslAuthentication|invalid_token"
)
_OFFERED = re.compile(r"(?:supported mechanisms:|enabled mechanisms are \[?)\s*([A-Z0-9, -]+)")
_STATE = re.compile(r" \(after \d+ms in state \w+[^)]*\)")
_CLASS = re.compile(r"(?:[a-z_]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_WHERE = "the client properties (--kafka-config, or MILLRACE_KAFKA_SASL_… and MILLRACE_KAFKA_SSL_…)"


def access_denied(text: str, bootstrap: str, options: Mapping[str, str], doing: str) -> MillraceError | None:
    """The error for what a client of Kafka says; None when that is not about being let in."""
    found = _PLACE.search(text)
    where = found[1] if found else bootstrap.partition(",")[0]
    if options.get("sasl.mechanism") == "OAUTHBEARER" and _TOKEN.search(text):
        return _no_token(text, options)
    if _MECHANISM.search(text):
        return _no_mechanism(text, where, options)
    if _LOGIN.search(text) and "SSL handshake" not in text:
        return _no_user(text, where, options)
    if doing == "connect" or _TLS.search(text):
        seen = tls_problem(where, options)
        return _no_tls(seen, where, options, doing) if seen else None
    return None


def _no_token(text: str, options: Mapping[str, str]) -> MillraceError:
    url = options.get("sasl.oauthbearer.token.endpoint.url", "the token endpoint")
    said = f"no token for client {options.get('sasl.oauthbearer.client.id', '')!r} came from {url}"
    if not _REFUSED.search(text):  # it may come when the endpoint is there again
        hint = "check that it runs, sasl.oauthbearer.token.endpoint.url, and https.ca.location for its certificate"
        return KafkaUnreachable(said, why=_short(text), hint=hint)
    hint = f"check sasl.oauthbearer.client.id, .client.secret and .scope in {_WHERE}"
    return AccessDenied(said, why=_short(text), hint=hint)


def _no_mechanism(text: str, where: str, options: Mapping[str, str]) -> AccessDenied:
    offered = _OFFERED.search(text)
    return AccessDenied(
        f"the broker at {where} does not offer {options.get('sasl.mechanism', 'that mechanism')}",
        why=f"it offers {offered[1].strip(' ,')}" if offered else _short(text),
        hint=f"set sasl.mechanism to one that it offers in {_WHERE}",
    )


def _no_user(text: str, where: str, options: Mapping[str, str]) -> AccessDenied:
    if options.get("sasl.mechanism") == "OAUTHBEARER":
        return AccessDenied(
            f"the broker at {where} does not accept our token",
            why=_short(text),
            hint="check the audience, scope and issuer that the broker wants, and its clock",
        )
    user = options.get("sasl.username", "")
    return AccessDenied(
        f"the broker at {where} does not let user {user!r} in ({options.get('sasl.mechanism', 'SASL')})",
        why="the password is wrong, or there is no such user",
        hint=f"check sasl.username and sasl.password in {_WHERE}",
    )


def _no_tls(seen: TlsProblem, where: str, options: Mapping[str, str], doing: str) -> AccessDenied:
    says, hint = _WORDS[seen.trouble]
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    trusted = options.get("ssl.ca.location", "the authorities of this system")
    other = _OTHER.get(protocol, protocol)
    filled = hint.format(trusted=trusted, protocol=protocol, other=other, where=_WHERE)
    return AccessDenied(f"{says.format(where=where)}: could not {doing}", why=seen.why, hint=filled)


_OTHER = {
    "SSL": "PLAINTEXT",
    "SASL_SSL": "SASL_PLAINTEXT",
    "PLAINTEXT": "SSL (SASL_SSL where it wants a password as well)",
    "SASL_PLAINTEXT": "SASL_SSL",
}
_WORDS = {
    ProblemKind.EXPIRED: (
        "the certificate of the broker at {where} is not valid now",
        "renew it on the broker; or is the clock of this machine wrong?",
    ),
    ProblemKind.HOST: (
        "the certificate of the broker at {where} is that of another host",
        "use the name that is in the certificate; if you know who answers, ssl.endpoint.identification.algorithm=none",
    ),
    ProblemKind.AUTHORITY: (
        "the certificate of the broker at {where} is of an authority that is not trusted",
        "give the certificate of its authority with ssl.ca.location=FILE.pem; now it is {trusted}",
    ),
    ProblemKind.NO_TLS: (
        "the broker at {where} speaks no TLS",
        "security.protocol={protocol} wants TLS: set {other}, or use the port of the broker's TLS listener",
    ),
    ProblemKind.WANTS_TLS: (
        "the broker at {where} wants TLS",
        "security.protocol={protocol} has none: set {other} in {where}",
    ),
    ProblemKind.WANTS_CERTIFICATE: (
        "the broker at {where} wants a certificate of ours",
        "set ssl.certificate.location and ssl.key.location in {where}",
    ),
    ProblemKind.CERTIFICATE_REFUSED: (
        "the broker at {where} does not accept our certificate",
        "is ssl.certificate.location the right one, still valid, and of an authority that the broker trusts?",
    ),
}


def _short(text: str) -> str:
    """A client's words without its state, the addresses and the classes of its own."""
    first = text.strip().partition("\n")[0]
    return _STATE.sub("", _CLASS.sub("", _PLACE.sub("", first)).removeprefix("bootstrap: ")).strip()[:300]
