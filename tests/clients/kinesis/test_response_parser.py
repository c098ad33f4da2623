"""Records that are read quickly are those that boto3 reads."""

from __future__ import annotations

import json
import uuid
from typing import Any

import boto3
import pytest

from emulator import KEYS, REGION, Emulator
from millrace.clients.kinesis.client import is_transient, read_quickly


def client_of(emulator: Emulator, *, quick: bool) -> Any:
    """A client of boto3's, with our way to read answers or with its own."""
    session = boto3.Session(KEYS["access_key"], KEYS["secret_key"], region_name=REGION)
    if quick:
        read_quickly(session._session)
    return session.client("kinesis", endpoint_url=emulator.endpoint)


def test_the_answer_is_the_same(emulator: Emulator) -> None:
    stream = emulator.create(f"s{uuid.uuid4().hex[:12]}", 1)
    emulator.put(stream, [b"plain", b"\xff\x00", "zwölf".encode(), b""])
    found = []
    for quick in (True, False):
        client = client_of(emulator, quick=quick)
        where = {"StreamName": stream, "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
        answer = client.get_records(ShardIterator=client.get_shard_iterator(**where)["ShardIterator"])
        found.append([answer["Records"], answer["MillisBehindLatest"], answer["ResponseMetadata"]["HTTPStatusCode"]])
        created = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        found[-1].append(created["StreamCreationTimestamp"].timestamp())
    assert found[0] == found[1]
    assert [one["Data"] for one in found[0][0]] == [b"plain", b"\xff\x00", "zwölf".encode(), b""]


@pytest.mark.parametrize("body", [b"<html>", b'{"message": "none"}', json.dumps({"Records": [{"Data": "*"}]}).encode()])
def test_an_answer_that_is_none_is_asked_for_again(emulator: Emulator, body: bytes) -> None:
    client = client_of(emulator, quick=True)
    parser = client._endpoint._response_parser_factory.create_parser("json")
    shape = client.meta.service_model.operation_model("GetRecords").output_shape
    with pytest.raises(Exception, match="no records that can be read") as raised:
        parser.parse({"body": body, "headers": {}, "status_code": 200}, shape)
    assert is_transient(raised.value)
