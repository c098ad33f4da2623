"""Keys and a certificate for a broker of ours on 127.0.0.1, made with the keytool that comes with Java."""

from __future__ import annotations

import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import ServiceFailed
from millrace.services.java import Java
from millrace.services.process import quote_output

CERTIFICATE_FILES = ("server.p12", "server.password", "ca.pem")
"""The key store, its password, and the certificate that clients trust."""


@dataclass(frozen=True)
class Certificates:
    """A key store for the brokers and, for clients, the certificate to trust."""

    store: Path
    password: str
    authority: Path

    @classmethod
    def ensure(cls, folder: Path, java: Java) -> Certificates:
        """The certificates of a folder, made if they are not there."""
        store, secret, authority = (folder / name for name in CERTIFICATE_FILES)
        if not authority.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            store.unlink(missing_ok=True)
            secret.write_text(secrets.token_urlsafe(24), "utf-8")
            secret.chmod(0o600)
            _make(java, store, secret, authority)
        return cls(store.absolute(), secret.read_text("utf-8"), authority.absolute())


def _make(java: Java, store: Path, secret: Path, authority: Path) -> None:
    access: list[str | Path] = ["-keystore", store, "-storepass:file", secret]
    access += ["-storetype", "PKCS12", "-alias", "broker"]
    key = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650"]
    names = ["-dname", "CN=millrace", "-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "bc:c=ca:true"]
    _keytool(java, [*key, *names, *access])
    fresh = authority.with_suffix(".new")
    _keytool(java, ["-exportcert", "-rfc", "-file", fresh, *access])
    fresh.rename(authority)


def _keytool(java: Java, arguments: list[str | Path]) -> None:
    ran = subprocess.run([java.keytool, *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ServiceFailed(
            "could not make a certificate for the broker",
            why=f"keytool says{quote_output(ran.stdout + ran.stderr)}",
            hint=f"{java.keytool} comes with a Java runtime; reinstall it",
        )
