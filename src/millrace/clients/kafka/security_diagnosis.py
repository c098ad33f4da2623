"""Why a Kafka cluster denies access.

- `access_denied` makes one error of what the different clients of Kafka report.
- `tls_problem` finds out why TLS with a broker fails, with Python's own TLS: Kafka's clients give no reason.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from millrace.errors import AccessDenied, KafkaUnreachable, MillraceError

_CONNECT_TIMEOUT_S = 2.0
_CORRELATION_ID = b"mill"
_API_VERSIONS_REQUEST = b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + _CORRELATION_ID + b"\xff\xff"
"""ApiVersions, version 0: length, API key and version, correlation id, no client id."""
_ALERT_TIMEOUT_S = 0.5
"""How long a broker may take to refuse our certificate."""


class ProblemKind(Enum):
    """Kinds of problems with TLS: what is wrong with the broker, and what to do."""

    EXPIRED = (
        "the certificate of the broker at {where} is not valid now",
        "renew it on the broker; or is the clock of this machine wrong?",
    )
    HOST = (
        "the certificate of the broker at {where} is that of another host",
        "use the name that is in the certificate; if you know who answers, ssl.endpoint.identification.algorithm=none",
    )
    AUTHORITY = (
        "the certificate of the broker at {where} is of an authority that is not trusted",
        "give the certificate of its authority with ssl.ca.location=FILE.pem; now it is {trusted}",
    )
    NO_TLS = (
        "the broker at {where} speaks no TLS",
        "security.protocol={protocol} wants TLS: set {other}, or use the port of the broker's TLS listener",
    )
    WANTS_TLS = (
        "the broker at {where} wants TLS",
        "security.protocol={protocol} has none: set {other} in {where}",
    )
    WANTS_CERTIFICATE = (
        "the broker at {where} wants a certificate of ours",
        "set ssl.certificate.location and ssl.key.location in {where}",
    )
    CERTIFICATE_REFUSED = (
        "the broker at {where} does not accept our certificate",
        "is ssl.certificate.location the right one, still valid, and of an authority that the broker trusts?",
    )


@dataclass(frozen=True)
class TlsProblem:
    """A problem with TLS at an address, and the reason."""

    kind: ProblemKind
    why: str


def tls_problem(address: str, options: Mapping[str, str]) -> TlsProblem | None:
    """Return the problem with TLS at HOST:PORT for a client with these properties; None if none was found."""
    parts = urlsplit(f"//{address}")
    host_port = (parts.hostname or "", parts.port or 0)
    wanted = options.get("security.protocol", "PLAINTEXT").upper().endswith("SSL")
    try:
        context = _context(options) if wanted else _context_without_verification()
        with socket.create_connection(host_port, _CONNECT_TIMEOUT_S) as connection:
            problem = _handshake_problem(connection, context, host_port[0], wanted)
        if problem and problem.kind is ProblemKind.CERTIFICATE_REFUSED and "ssl.certificate.location" not in options:
            return TlsProblem(ProblemKind.WANTS_CERTIFICATE, "it asks for one, and none was sent")
        # A broker that shuts down closes connections too: only one that answers without TLS has none.
        if wanted and problem is None and _answers_without_tls(host_port):
            return TlsProblem(ProblemKind.NO_TLS, "it answers Kafka's requests without TLS")
    except OSError:
        return None
    return problem


def _handshake_problem(
    connection: socket.socket, context: ssl.SSLContext, host: str, wanted: bool
) -> TlsProblem | None:
    try:
        with context.wrap_socket(connection, server_hostname=host) as tls:
            if wanted:
                return _problem_after_handshake(tls)
            return TlsProblem(ProblemKind.WANTS_TLS, f"it answers in {tls.version()}")
    except ssl.SSLCertVerificationError as error:
        return _unverified(error)
    except OSError as error:
        return _refused(error) if wanted else None


def _answers_without_tls(host_port: tuple[str, int]) -> bool:
    """Return whether a request of Kafka's protocol is answered without TLS."""
    with socket.create_connection(host_port, _CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.sendall(_API_VERSIONS_REQUEST)
        answer = connection.recv(8)
    return answer[4:8] == _CORRELATION_ID


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


def _context_without_verification() -> ssl.SSLContext:
    """Return a context that only finds out whether the server uses TLS; no data is sent through it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _problem_after_handshake(tls: ssl.SSLSocket) -> TlsProblem | None:
    """A broker refuses a client certificate only after the handshake."""
    tls.settimeout(_ALERT_TIMEOUT_S)
    try:
        tls.recv(1)
    except ssl.SSLError as error:
        return _refused(error)
    except OSError:  # a timeout too: it accepts the certificate
        pass
    return None


def _unverified(error: ssl.SSLCertVerificationError) -> TlsProblem:
    text = error.verify_message
    if "expired" in text or "not yet valid" in text:
        return TlsProblem(ProblemKind.EXPIRED, text)
    if "mismatch" in text:
        return TlsProblem(ProblemKind.HOST, text)
    return TlsProblem(ProblemKind.AUTHORITY, text)


def _refused(error: OSError) -> TlsProblem | None:
    text = str(error).lower()
    if "alert" in text and any(word in text for word in ("certificate", "unknown_ca", "unknown ca")):
        return TlsProblem(ProblemKind.CERTIFICATE_REFUSED, str(error).rpartition("] ")[2].partition(" (_ssl")[0])
    return None


_BROKER = re.compile(r"(?:sasl_|_)?(?:ssl|plaintext)(?:://)([\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+)/")
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
    """Return the error for the message of a Kafka client; None if it is not about access."""
    broker = _BROKER.search(text)
    where = broker[1] if broker else bootstrap.partition(",")[0]
    if options.get("sasl.mechanism") == "OAUTHBEARER" and _TOKEN.search(text):
        return _no_token(text, options)
    if _MECHANISM.search(text):
        return _no_mechanism(text, where, options)
    if _LOGIN.search(text) and "SSL handshake" not in text:
        return _no_user(text, where, options)
    if doing == "connect" or _TLS.search(text):
        problem = tls_problem(where, options)
        return _no_tls(problem, where, options, doing) if problem else None
    return None


def _no_token(text: str, options: Mapping[str, str]) -> MillraceError:
    url = options.get("sasl.oauthbearer.token.endpoint.url", "the token endpoint")
    message = f"no token for client {options.get('sasl.oauthbearer.client.id', '')!r} came from {url}"
    if not _REFUSED.search(text):  # the endpoint may be back later
        hint = "check that it runs, sasl.oauthbearer.token.endpoint.url, and https.ca.location for its certificate"
        return KafkaUnreachable(message, why=_short(text), hint=hint)
    hint = f"check sasl.oauthbearer.client.id, .client.secret and .scope in {_WHERE}"
    return AccessDenied(message, why=_short(text), hint=hint)


def _no_mechanism(text: str, where: str, options: Mapping[str, str]) -> AccessDenied:
    offered = _OFFERED.search(text)
    return AccessDenied(
        f"the broker at {where} does not offer {options.get('sasl.mechanism', 'that mechanism')}",
        why=f"it offers {offered[1].strip(' ,')}" if offered else _short(text),
        hint=f"set sasl.mechanism to one that it offers in {_WHERE}",
    )


def _no_user(text: str, where: str, options: Mapping[str, str]) -> AccessDenied:
    if options.get("sasl.mechanism") == "OAUTHBEARER":
        hint = "check the audience, scope and issuer that the broker wants, and its clock"
        return AccessDenied(f"the broker at {where} does not accept our token", why=_short(text), hint=hint)
    user = options.get("sasl.username", "")
    return AccessDenied(
        f"the broker at {where} does not let user {user!r} in ({options.get('sasl.mechanism', 'SASL')})",
        why="the password is wrong, or there is no such user",
        hint=f"check sasl.username and sasl.password in {_WHERE}",
    )


def _no_tls(problem: TlsProblem, where: str, options: Mapping[str, str], doing: str) -> AccessDenied:
    message, hint = problem.kind.value
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    trusted = options.get("ssl.ca.location", "the authorities of this system")
    other = _OTHER.get(protocol, protocol)
    filled = hint.format(trusted=trusted, protocol=protocol, other=other, where=_WHERE)
    return AccessDenied(f"{message.format(where=where)}: could not {doing}", why=problem.why, hint=filled)


_OTHER = {
    "SSL": "PLAINTEXT",
    "SASL_SSL": "SASL_PLAINTEXT",
    "PLAINTEXT": "SSL (SASL_SSL where it wants a password as well)",
    "SASL_PLAINTEXT": "SASL_SSL",
}


def _short(text: str) -> str:
    """Return the message of a client without its state, addresses and class names."""
    first = text.strip().partition("\n")[0]
    return _STATE.sub("", _CLASS.sub("", _BROKER.sub("", first)).removeprefix("bootstrap: ")).strip()[:300]
