"""Cassandra's address and errors, as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.clients.cassandra import Cassandra
from millrace.errors import CassandraUnreachable, FileUnusable, InvalidCql, InvalidOption, InvalidTable, UnknownTable
from millrace.services.process import free_port


def test_addresses() -> None:
    assert Cassandra.at("one, [::1]:9043").points == [("one", 9042), ("::1", 9043)]
    for wrong in ("", "a:b", "host:0", "host:70000", "http://host:9042"):
        with pytest.raises(InvalidOption):
            Cassandra.at(wrong)


def test_properties_come_from_a_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hush")
    file = tmp_path / "client.properties"
    file.write_text("user=me\npassword=${SECRET}\ndatacenter=dc1\n")
    door = Cassandra.at("one", file)
    assert door.options["password"] == "hush"
    assert "hush" not in repr(door)


@pytest.mark.parametrize("text", ["usr=me\n", "user=me\n", "nonsense\n"])
def test_properties_that_are_wrong(tmp_path: Path, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(InvalidOption):
        Cassandra.at("one", file)


def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable):
        Cassandra("127.0.0.1:1", {"tls.ca": str(tmp_path / "none.pem")}).session()


def test_nobody_answers() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(CassandraUnreachable) as caught:
        Cassandra(address, timeout=2.0).session()
    assert address in caught.value.message
    assert "refused" in str(caught.value.why)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("SELEKT 1", InvalidCql),
        ("SELECT * FROM nowhere.t", UnknownTable),
        ("SELECT * FROM system.nothing", UnknownTable),
        ("SELECT nothing FROM system.local", InvalidTable),
    ],
)
def test_what_cassandra_refuses(cassandra: Cassandra, statement: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        cassandra.execute(statement)
    assert "Error from server" not in str(caught.value)


def test_one_session_is_kept(cassandra: Cassandra) -> None:
    assert cassandra.session() is Cassandra.at(cassandra.address).session()
