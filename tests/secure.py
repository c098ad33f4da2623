"""A Kafka with every kind of lock on its doors, the certificates for them, and somebody who gives out tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.security import ALLOWED_URLS
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions, Listener
from millrace.services.process import free_port

CLIENT, SECRET = "reporter", "Reporters-0wn-s3cret"
_LISTENER = "listener.name"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


class Authority:
    """Makes certificates with openssl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.pem"
        _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", "/CN=authority", *self._out("ca"))

    def issue(self, name: str, alternative: str = "IP:127.0.0.1", days: int = 2) -> Path:
        """A certificate, its key beside it (`.key`), and both in one file (`.both`); with no days it has expired."""
        request, certificate = self.folder / f"{name}.csr", self.folder / f"{name}.pem"
        also = ("-addext", f"subjectAltName={alternative}")
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", *also, "-keyout", self.key(name), "-out", request)
        by = ("-CA", self.certificate, "-CAkey", self.key("ca"), "-CAcreateserial", "-copy_extensions", "copy")
        _openssl("x509", "-req", "-in", request, *by, "-days", str(days), "-out", certificate)
        both = self.folder / f"{name}.both"
        both.write_text(self.key(name).read_text() + certificate.read_text())
        return certificate

    def key(self, name: str) -> Path:
        """The key of a certificate."""
        return self.folder / f"{name}.key"

    def _out(self, name: str) -> tuple[str | Path, ...]:
        return ("-keyout", self.key(name), "-out", self.folder / f"{name}.pem")


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Tokens:
    """Gives a token to whoever knows the client's secret, over TLS."""

    def __init__(self, authority: Authority) -> None:
        self._key = hashlib.sha256(b"a key that the broker has too").digest()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(authority.issue("tokens"), authority.key("tokens"))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._answerer())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def keys(self) -> dict[str, Any]:
        """What a broker needs to know our tokens."""
        return {"keys": [{"kty": "oct", "kid": "one", "alg": "HS256", "k": _encoded(self._key)}]}

    def token(self) -> str:
        """A JSON Web Token for five minutes."""
        now = int(time.time())
        said = {"sub": CLIENT, "aud": "kafka", "scope": "kafka", "iat": now, "exp": now + 300}
        parts = [_encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "one", "typ": "JWT"}, said)]
        signature = hmac.new(self._key, ".".join(parts).encode(), hashlib.sha256).digest()
        return ".".join([*parts, _encoded(signature)])

    def _answerer(self) -> type[BaseHTTPRequestHandler]:
        tokens = self
        expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                known = self.headers.get("authorization") == expected
                told = {"access_token": tokens.token(), "token_type": "bearer", "expires_in": 300}
                body = json.dumps(told if known else {"error": "invalid_client"}).encode()
                self.send_response(200 if known else 401)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        return Answers


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@dataclass(frozen=True)
class Secured:
    """The broker, and what clients of it need."""

    kafka: KafkaCluster
    authority: Authority
    tokens: Tokens
    doors: Mapping[str, Listener]

    def cluster(self, mechanism: str) -> Cluster:
        """As one is let in by PLAIN, SCRAM-SHA-…, OAUTHBEARER or MUTUAL (a certificate of one's own)."""
        usual = self.kafka.cluster()
        if mechanism == "MUTUAL":
            return self.at("MUTUAL", **self.certificate("client"))
        if mechanism == "OAUTHBEARER":
            kept = {"security.protocol": "SASL_SSL", "ssl.ca.location": usual.options["ssl.ca.location"]}
            return Cluster(usual.bootstrap, {**kept, "sasl.mechanism": mechanism, **self.token_options()}, 5.0)
        return Cluster(usual.bootstrap, {**usual.options, "sasl.mechanism": mechanism}, 5.0)

    def at(self, door: str, **options: str) -> Cluster:
        """Through a door that speaks TLS and knows no passwords."""
        trusted = {"security.protocol": "SSL", "ssl.ca.location": str(self.authority.certificate)}
        named = {name.replace("_", "."): value for name, value in options.items()}
        return Cluster(f"127.0.0.1:{self.doors[door].port}", trusted | named, 5.0)

    def certificate(self, name: str) -> dict[str, str]:
        """The client properties for a certificate of ours."""
        certificate, key = self.authority.folder / f"{name}.pem", self.authority.key(name)
        return {"ssl_certificate_location": str(certificate), "ssl_key_location": str(key)}

    def token_options(self) -> dict[str, str]:
        """The client properties for tokens."""
        return {
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "https.ca.location": str(self.authority.certificate),
        }

    @property
    def plain(self) -> str:
        """The address of the broker's own door, which wants nothing."""
        layout = self.kafka.layout
        assert layout is not None
        return layout.internal


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Start all of it, and stop it at the end."""
    papers = folder / "papers"
    papers.mkdir()
    authority = Authority(papers)
    authority.issue("broker")
    authority.issue("old", days=0)
    authority.issue("elsewhere", "DNS:elsewhere.example")
    authority.issue("client")
    tokens = Tokens(authority)
    keys = papers / "keys.json"
    keys.write_text(json.dumps(tokens.keys()))
    doors = {name: Listener(free_port(), "SSL") for name in ("MUTUAL", "OLD", "ELSEWHERE")}
    options = KafkaClusterOptions(
        secure=True,
        heap="256m",
        properties=_properties(authority, keys),
        java=(f"-D{ALLOWED_URLS}={keys.as_uri()}",),
        listeners=doors,
    )
    kafka = KafkaCluster(folder / "kafka", options)
    try:
        kafka.start()
        yield Secured(kafka, authority, tokens, doors)
    finally:
        kafka.stop()
        tokens.close()


def _properties(authority: Authority, keys: Path) -> dict[str, str]:
    made = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{_LISTENER}.client.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
        f"{_LISTENER}.client.oauthbearer.sasl.server.callback.handler.class": (
            f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
        ),
        f"{_LISTENER}.client.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{_LISTENER}.client.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        f"{_LISTENER}.mutual.ssl.client.auth": "required",
        f"{_LISTENER}.mutual.ssl.truststore.type": "PEM",
        f"{_LISTENER}.mutual.ssl.truststore.location": str(authority.certificate),
    }
    for door, name in (("mutual", "broker"), ("old", "old"), ("elsewhere", "elsewhere")):
        made[f"{_LISTENER}.{door}.ssl.keystore.type"] = "PEM"
        made[f"{_LISTENER}.{door}.ssl.keystore.location"] = str(authority.folder / f"{name}.both")
    return made
