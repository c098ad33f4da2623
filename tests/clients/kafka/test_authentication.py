"""Connections of our own to brokers that want TLS and passwords: the same properties, the same answers."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka.authentication import AuthenticationFailed, Sasl, tls_context, unsupported_access
from secure import Authority

# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
ANSWER = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = f"c=biws,r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchanged(monkeypatch: pytest.MonkeyPatch, *answers: str | bytes) -> list[str]:
    """What a client sends to a server that gives these answers."""
    monkeypatch.setattr("millrace.clients.kafka.authentication.secrets.token_urlsafe", lambda _: NONCE)
    sent: list[str] = []
    left = iter(answers)

    def exchange(message: bytes) -> bytes:
        sent.append(message.decode())
        answer = next(left)
        return answer if isinstance(answer, bytes) else answer.encode()

    Sasl("SCRAM-SHA-256", "user", "pencil").authenticate(exchange)
    return sent


def test_scram(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exchanged(monkeypatch, ANSWER, SIGNATURE) == [f"n,,n=user,r={NONCE}", PROOF]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (("r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",), "not one of SCRAM"),
        ((ANSWER.replace("4096", "1"),), "not one of SCRAM"),
        ((ANSWER.replace("4096", "1000001"),), "not one of SCRAM"),
        ((ANSWER.replace("4096", "many"),), "not one of SCRAM"),
        ((ANSWER.replace("s=W22ZaJ0SNY7soEsUEjb6gQ==,", ""),), "not one of SCRAM"),
        ((ANSWER.replace("6gQ==", "6gQ"),), "not one of SCRAM"),
        (("?",), "not one of SCRAM"),
        ((b"\xff",), "not one of SCRAM"),
        ((ANSWER, b"\xff"), "not one of SCRAM"),
        ((ANSWER, "v=\xe9"), "not one of SCRAM"),
        ((ANSWER, "v=AAAA"), "does not know the password itself"),
        ((ANSWER, "e=invalid-proof"), "invalid-proof"),
    ],
)
def test_a_server_that_is_not_the_broker_learns_nothing(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[str | bytes, ...], why: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        exchanged(monkeypatch, *answers)


def test_plain() -> None:
    sent: list[bytes] = []
    sasl = Sasl("PLAIN", "me", "p,w=")
    sasl.authenticate(lambda message: sent.append(message) or b"")  # type: ignore[func-returns-value]
    assert sent == [b"\0me\0p,w="]
    assert "p,w=" not in repr(sasl)


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({}, ""),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "ssl.ca.location": "ca.pem"}, ""),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism OAUTHBEARER"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "k.p12"}, "ssl.keystore.location"),
        ({"ssl.crl.location": "x", "client.id": "me"}, "ssl.crl.location"),
    ],
)
def test_what_bulk_reads_do_not_know(properties: dict[str, str], wanted: str) -> None:
    assert unsupported_access(properties) == wanted


def test_tls_as_the_properties_say(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("client")
    base: dict[str, Any] = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
    assert tls_context({"security.protocol": "SASL_PLAINTEXT"}) is None
    usual = tls_context(base)
    assert usual is not None
    assert (usual.verify_mode, usual.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(usual.get_ca_certs()) == 1
    inline = {"security.protocol": "SSL", "ssl.ca.pem": authority.certificate.read_text()}
    own = {
        "ssl.certificate.location": str(tmp_path / "client.pem"),
        "ssl.key.location": str(authority.key("client")),
        "ssl.endpoint.identification.algorithm": "none",
    }
    any_host = tls_context(inline | own)
    assert any_host is not None
    assert (any_host.verify_mode, any_host.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_an_authority_as_openssl_makes_it_is_taken_by_every_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 asks authorities for more than clients of Kafka do."""
    authority, usual = Authority(tmp_path), ssl.create_default_context

    def strict(**options: Any) -> ssl.SSLContext:
        context = usual(**options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = tls_context({"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)})
    assert context is not None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("broker"), authority.key("broker"))
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = context.wrap_bio(here, there, server_hostname="127.0.0.1")
    server_end = server.wrap_bio(there, here, server_side=True)
    for end in (client_end, server_end):  # what each has to say first; then the certificate is looked at
        with pytest.raises(ssl.SSLWantReadError):
            end.do_handshake()
    client_end.do_handshake()
    assert client_end.getpeercert()
