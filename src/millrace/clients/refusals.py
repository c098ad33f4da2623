"""What Cassandra's driver raises, in our words: which of our errors it is, and whether it may pass."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.clients.handshake import look
from millrace.errors import (
    CassandraDenied,
    CassandraFailed,
    CassandraUnreachable,
    InvalidCql,
    InvalidTable,
    MillraceError,
    RowRefused,
    UnknownTable,
)

_QUOTED = re.compile(r'message="(.*)"\s*$', re.DOTALL)
_UNKNOWN = re.compile(r"keyspace .* does not exist|unconfigured table|table .* does not exist", re.IGNORECASE)
_COLUMN = re.compile(r"undefined column name|unknown identifier|undefined name", re.IGNORECASE)
_TOO_LARGE = re.compile(r"too large|larger than|key may not be empty|exceeds", re.IGNORECASE)
_LOGIN = "check user and password in the file given by --cassandra-config"


def explained(error: BaseException, address: str, doing: str, *, tls: bool = False) -> MillraceError:
    """Our error for one of the driver's; any other exception is raised again as it is. `tls`: whether we speak it."""
    if isinstance(error, MillraceError):
        return error
    names = {name for one in _roots(error) for name in _kinds(one)}
    why = reason(error)
    if not names & {"DriverException", "NoHostAvailable", "ErrorMessage", "ConnectionException"}:
        raise error
    denied = _denied(names, why, address, doing)
    if denied:
        return denied
    if names & {"InvalidRequest", "SyntaxException", "ConfigurationException", "AlreadyExists"}:
        return _refused(why, doing)
    if names & {"NoHostAvailable", "OperationTimedOut", "UnresolvableContactPoints", "ConnectionException"}:
        if doing == "connect" and not tls and look(_first(address), {}):
            hint = "set tls=yes, or tls.ca=FILE.pem, in the file given by --cassandra-config"
            return CassandraDenied(f"the Cassandra at {address} wants TLS: could not {doing}", why=why, hint=hint)
        return CassandraUnreachable(
            f"no Cassandra answers at {address}: could not {doing}",
            why=why,
            hint="check the address, that Cassandra runs there, and whether it wants TLS (--cassandra-config)",
        )
    return CassandraFailed(f"Cassandra could not {doing}", why=why)


def _first(address: str) -> str:
    host = address.partition(",")[0]
    return host if re.search(r":\d+$", host) else f"{host}:9042"


def passes(error: BaseException) -> bool:
    """Whether the same may work in a moment: a node that is away, too busy or too slow."""
    names = {name for one in _roots(error) for name in _kinds(one)}
    lasting = {"RequestValidationException", "AuthenticationFailed", "SyntaxException", "CertificateError"}
    if names & lasting or "SSLCertVerificationError" in names or "[SSL:" in reason(error):
        return False
    return bool(names & {"DriverException", "NoHostAvailable", "ErrorMessage", "ConnectionException", "OSError"})


def reason(error: BaseException) -> str:
    """The driver's words without its frame around them."""
    texts = list(dict.fromkeys(_said(one) for one in _roots(error)))
    return "; ".join(text for text in texts[:3] if text) or type(error).__name__


def _denied(names: set[str], why: str, address: str, doing: str) -> CassandraDenied | None:
    # The driver makes another error of it, with the old one's words.
    if names & {"SSLCertVerificationError", "SSLError", "CertificateError"} or "[SSL:" in why:
        says, hint = next((said for pattern, *said in _TLS if re.search(pattern, why, re.IGNORECASE)), _TLS[-1][1:])
        return CassandraDenied(f"{says.format(address)}: could not {doing}", why=_bare(why), hint=hint)
    if names & {"AuthenticationFailed", "Unauthorized"} or "Remote end requires authentication" in why:
        return CassandraDenied(f"the Cassandra at {address} refuses us: could not {doing}", why=why, hint=_LOGIN)
    return None


def _bare(why: str) -> str:
    """OpenSSL's words without its codes, each once."""
    parts = [re.sub(r"\[SSL[^\]]*\] ?| ?\(_ssl\.c:\d+\)|^\[Errno \d+\] ", "", part).strip() for part in why.split("; ")]
    return "; ".join(dict.fromkeys(filter(None, parts)))


_TLS = (
    (
        "expired|not yet valid",
        "the certificate of the Cassandra at {} is not valid now",
        "renew it there; or is the clock of this machine wrong?",
    ),
    (
        "mismatch|doesn't match",
        "the certificate of the Cassandra at {} is that of another host",
        "tls.hostname=no in the file given by --cassandra-config accepts it",
    ),
    (
        "self.signed|issuer|unknown authority",
        "the certificate of the Cassandra at {} is of an authority that is not trusted",
        "give the authority's PEM file as tls.ca in the file given by --cassandra-config",
    ),
    (
        "wrong.version.number|record layer",
        "the Cassandra at {} speaks no TLS",
        "leave tls… out of the file given by --cassandra-config",
    ),
    (
        "alert",
        "the Cassandra at {} does not accept our certificate, or wants one",
        "check tls.certificate and tls.key in the file given by --cassandra-config",
    ),
    (
        "",
        "TLS with the Cassandra at {} failed",
        "check tls.ca, tls.certificate and tls.hostname in the file given by --cassandra-config",
    ),
)
"""What OpenSSL says, what that means, and what to do."""


def _refused(why: str, doing: str) -> MillraceError:
    if _UNKNOWN.search(why):
        hint = "say create: true on the sink, or look with millrace cassandra cql 'DESCRIBE TABLES'"
        return UnknownTable(f"could not {doing}: {why}", hint=hint)
    if _COLUMN.search(why):
        return InvalidTable(f"could not {doing}: {why}")
    if _TOO_LARGE.search(why):
        return RowRefused(f"could not {doing}: {why}", hint="leave such rows out, or make their values smaller")
    return InvalidCql(f"could not {doing}: {why}")


def _roots(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it says happened at each host."""
    yield error
    found = getattr(error, "errors", None)
    for one in found.values() if isinstance(found, dict) else ():
        if isinstance(one, BaseException):
            yield from _roots(one)
    for one in (error.__cause__, error.__context__):
        if isinstance(one, OSError):
            yield one


def _kinds(error: BaseException) -> Iterator[str]:
    return (kind.__name__ for kind in type(error).__mro__)


def _said(error: BaseException) -> str:
    if type(error).__name__ == "NoHostAvailable":
        return "" if getattr(error, "errors", None) else "every node is away"
    text = str(getattr(error, "message", "") or error)
    found = _QUOTED.search(text)
    return " ".join((found[1] if found else text).split())
