"""Kinesis as a client sees it: where it is, who we are there, what is asked again, and its errors in our words.

Answers with records, taken apart without boto3's walk through its model of them, which costs eight times as much.
"""

from __future__ import annotations

import os
import random
import threading
import time
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from millrace.errors import (
    InvalidOption,
    KinesisDenied,
    KinesisFailed,
    KinesisUnreachable,
    MillraceError,
    MissingExtra,
    UnknownStream,
)
from millrace.masking import register_secret

_RECORDS = "GetRecordsOutput"
_ARRIVAL = "ApproximateArrivalTimestamp"


def read_quickly(session: Any) -> None:
    """Let a session of botocore's do so with records of Kinesis; whatever else comes is read as ever."""
    import orjson
    from botocore.parsers import JSONParser, ResponseParserError, ResponseParserFactory

    class Parser(JSONParser):  # type: ignore[misc]  # botocore has no types
        def _handle_json_body(self, raw_body: bytes, shape: Any) -> Any:
            if shape.name != _RECORDS:
                return super()._handle_json_body(raw_body, shape)
            try:
                answer = orjson.loads(raw_body)
                for record in answer["Records"]:
                    record["Data"] = a2b_base64(record["Data"])
                    at, is_number = record[_ARRIVAL], isinstance(record[_ARRIVAL], int | float)
                    record[_ARRIVAL] = datetime.fromtimestamp(at, UTC) if is_number else self._timestamp_parser(at)
            except (ValueError, TypeError, KeyError) as error:
                raise ResponseParserError(f"the answer has no records that can be read: {error}") from None
            return answer

    class Parsers(ResponseParserFactory):  # type: ignore[misc]
        def create_parser(self, protocol_name: str) -> Any:
            return Parser(**self._defaults) if protocol_name == "json" else super().create_parser(protocol_name)

    session.register_component("response_parser_factory", Parsers())


CONNECTIONS = 16
"""Maximum number of concurrent requests of a process."""
_MIN_RETRY_DELAY_S, _MAX_RETRY_DELAY_S = 0.05, 5.0
_BUSY = {
    "ProvisionedThroughputExceededException",
    "LimitExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "KMSThrottlingException",
    "ResourceInUseException",
}
_AWAY = {"InternalFailure", "InternalServerError", "InternalServerException", "ServiceUnavailable", "RequestTimeout"}
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_OPEN: dict[tuple[object, ...], Any] = {}
_OPENING = threading.Lock()


@dataclass(frozen=True)
class Shard:
    """A shard as the stream lists it."""

    id: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stream:
    """A stream, as the service describes it."""

    name: str
    created: int
    """Creation time in milliseconds: a stream that is deleted and created again has the same names of shards."""
    retention: int
    """How long records are kept, in milliseconds."""


@dataclass(frozen=True)
class Kinesis:
    """A region or an address of the service, and what lets us in; without keys, what the tools of AWS would find."""

    region: str | None = None
    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    role: str | None = None
    """The ARN of a role that is taken on with those keys."""
    role_session: str = "millrace"
    role_external_id: str | None = field(default=None, repr=False)
    patience: float = 120.0
    """How long the service may be away, or refuse for want of capacity, before that is an error."""

    def __post_init__(self) -> None:
        others = [os.environ.get(name) for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")]
        for secret in filter(
            None, (self.access_key, self.secret_key, self.session_token, self.role_external_id, *others)
        ):
            register_secret(secret)

    @property
    def where(self) -> str:
        """The place, for people."""
        return self.endpoint or f"Kinesis in {self.region or 'the usual region'}"

    def client(self, service: str = "kinesis", endpoint: str | None = None) -> Any:
        """The client of this process, made once; one that a parent of this process made is not used."""
        key = (os.getpid(), service, endpoint, self)
        with _OPENING:
            if key not in _OPEN:
                _OPEN[key] = self._open(service, endpoint or (self.endpoint if service == "kinesis" else None))
            return _OPEN[key]

    def _open(self, service: str, endpoint: str | None) -> Any:
        boto3, config = _boto3()
        from botocore.exceptions import BotoCoreError, NoRegionError

        asked = config(
            retries={"total_max_attempts": 1},  # who asks decides what is asked again
            max_pool_connections=CONNECTIONS,
            connect_timeout=10,
            read_timeout=30,
        )
        try:
            session = self._session(boto3)
            read_quickly(session._session)
            client = session.client(service, endpoint_url=endpoint, config=asked)
            client.meta.events.register("after-call", _require_whole)
            return client
        except NoRegionError:
            hint = "say region: eu-central-1, or set AWS_REGION"
            raise InvalidOption("there is no region to look for Kinesis in", hint=hint) from None
        except (BotoCoreError, ValueError) as error:  # a profile that is not there, an address that is none
            raise InvalidOption(f"{self.where} cannot be used", why=str(error)) from None

    def _session(self, boto3: Any) -> Any:
        session = boto3.Session(
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            aws_session_token=self.session_token,
            region_name=self.region,
            profile_name=self.profile,
        )
        if not self.role:
            return session
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
        from botocore.session import get_session

        named = {"RoleSessionName": self.role_session}
        external = {"ExternalId": self.role_external_id} if self.role_external_id else {}
        sts = session._session.create_client
        fetcher = AssumeRoleCredentialFetcher(sts, session.get_credentials(), self.role, extra_args=named | external)
        # Taken on again before it ends: a stream is read for longer than a role is given.
        core = get_session()
        core._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
        return boto3.Session(botocore_session=core, region_name=self.region or session.region_name)

    def call_with_retries(self, ask: Callable[..., Any], doing: str, **asked: Any) -> Any:
        """What a call gives, asked again with growing pauses while the service is away or refuses for now."""
        began, pause = time.monotonic(), _MIN_RETRY_DELAY_S
        while True:
            try:
                return ask(**asked)
            except Exception as error:
                waited = time.monotonic() - began
                if not is_transient(error) or waited + pause > self.patience:
                    raise self.explain(error, doing, waited) from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _MAX_RETRY_DELAY_S)

    def stream(self, name: str) -> Stream:
        """What there is to know about a stream."""
        summary = self._describe(name)["StreamDescriptionSummary"]
        created = summary.get("StreamCreationTimestamp")
        created_ms = round(created.timestamp() * 1000) if created else 0
        return Stream(name, created_ms, summary.get("RetentionPeriodHours", 24) * 3_600_000)

    def _describe(self, name: str) -> Any:
        return self.call_with_retries(self.client().describe_stream_summary, f"find stream {name!r}", StreamName=name)

    def shards(self, name: str) -> list[Shard]:
        """Every shard of a stream that is listed, open and closed."""
        shards: list[Shard] = []
        asked = {"StreamName": name}
        while asked:
            page = self.call_with_retries(self.client().list_shards, f"list the shards of {name!r}", **asked)
            for shard in page["Shards"]:
                parents = (shard.get(key) for key in ("ParentShardId", "AdjacentParentShardId"))
                shards.append(Shard(shard["ShardId"], tuple(filter(None, parents))))
            asked = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
        return shards

    def now(self, name: str) -> int:
        """Return the time of the service in milliseconds: its seconds, and the rest of our clock if that agrees."""
        date = self._describe(name)["ResponseMetadata"]["HTTPHeaders"].get("date")
        ours = int(time.time() * 1000)
        if not date:
            return ours
        theirs = int(parsedate_to_datetime(date).timestamp() * 1000)
        return min(max(ours, theirs), theirs + 999)

    def explain(self, error: BaseException, doing: str, waited: float = 0.0) -> MillraceError:
        """An exception of boto3's as one of ours; `doing` completes the words 'could not …'."""
        if isinstance(error, MillraceError):
            return error
        code, why = code_of(error), _reason(error)
        if code == "ResourceNotFoundException":
            hint = "check its name and the region; aws kinesis list-streams shows what there is"
            return UnknownStream(f"{self.where}: could not {doing}: it is not there", why=why, hint=hint)
        if code in _DENIED or type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
            hint = "check the keys, the profile or the role, and what it may do"
            return KinesisDenied(f"{self.where} does not let us {doing}", why=why, hint=hint)
        if code in _BUSY:
            after = f" for {waited:.0f} s" if waited >= 1 else ""
            hint = "more shards, fewer readers of the stream, or a longer retry_timeout"
            return KinesisFailed(f"{self.where} has had no capacity{after}: could not {doing}", why=why, hint=hint)
        if is_transient(error):
            hint = "check the address, the region and the network"
            return KinesisUnreachable(f"{self.where} does not answer: could not {doing}", why=why, hint=hint)
        return KinesisFailed(f"{self.where}: could not {doing}", why=why)


def code_of(error: BaseException) -> str:
    """The service's name for what went wrong; empty where it was never reached."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def is_busy(error: BaseException) -> bool:
    """Whether the service refuses for want of capacity."""
    return code_of(error) in _BUSY


def is_transient(error: BaseException) -> bool:
    """Whether the same call may work a moment later."""
    code = code_of(error)
    if code:
        status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return code in _BUSY or code in _AWAY or status >= 500
    from botocore.exceptions import HTTPClientError
    from botocore.parsers import ResponseParserError

    return isinstance(error, HTTPClientError | ResponseParserError | ConnectionError | TimeoutError)


def boto_time(milliseconds: int) -> datetime:
    """A time as boto3 takes it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _reason(error: BaseException) -> str:
    response = getattr(error, "response", None)
    message = response.get("Error", {}).get("Message") if isinstance(response, dict) else None
    code = code_of(error)
    return f"{code}: {message}" if message and code else code or str(error).partition("\n")[0]


def _require_whole(http_response: Any, **_: Any) -> None:
    """Raise if a response is incomplete; boto3 would take it for an empty one."""
    length = http_response.headers.get("Content-Length")
    if length and not http_response.headers.get("Content-Encoding") and int(length) != len(http_response.content):
        raise ConnectionError("the answer broke off")


def _boto3() -> tuple[Any, Any]:
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        what = "Kinesis needs the package boto3, which is not installed"
        raise MissingExtra(what, why=str(error), hint="pip install 'millrace[kinesis]'") from None
    return boto3, Config
