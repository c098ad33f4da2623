"""Written by scripts/reference.py from the options of connectors and panels: change those, not this file."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from pyspark.sql.types import StructType

from millrace.pipeline.loading.functions import arrow_udf as arrow_udf
from millrace.pipeline.loading.python import Pipeline as Pipeline
from millrace.pipeline.model import Connection
from millrace.pipeline.secret import secret as secret

_Text = str | PathLike[str]
_Picture = tuple[str, dict[str, Any]]

__version__: str

def cassandra(
    table: _Text,
    *,
    only: _Text | Sequence[_Text] = ...,
    schema: _Text | StructType | None = ...,
    on_bad: Literal["null", "fail"] = ...,
    parts: int | None = ...,
    consistency: Literal["one", "two", "three", "quorum", "all", "local_quorum", "each_quorum", "local_one", "any"] = ...,
    create: bool = ...,
    key: _Text | Sequence[_Text] = ...,
    clustering: _Text | Sequence[_Text] = ...,
    replication: int | Mapping[str, Any] | None = ...,
    ttl: _Text | float | None = ...,
    nulls: Literal["keep", "erase"] = ...,
    in_flight: int = ...,
    retry_timeout: _Text | float = ...,
) -> Connection:
    """As a source: A table of Cassandra as it is now: read by token ranges, or only the partitions that filters name.
    As a sink: A table of Cassandra, written by its primary key: a row that is there already is replaced.

    table: keyspace.table
    only: Only these columns.
    schema: The columns, in Spark's DDL, for check.
    on_bad: What becomes of a value that Spark cannot hold, as the year 20000.
    parts: Number of tasks that read the table.
    consistency: How many replicas must answer.
    create: Make the keyspace and the table if they are missing; then key is needed.
    key: The columns of the partition key.
    clustering: The clustering columns, in order; `time desc` for the newest first.
    replication: Copies of a keyspace that is made: a number, or {datacenter: number}.
    ttl: Cassandra forgets a row so long after it was written.
    nulls: What a null does to a value that is there.
    in_flight: Maximum number of concurrent requests of each task.
    retry_timeout: How long writes are repeated while Cassandra is away, before a batch fails.
    """

def console(
    *,
    rows: int = ...,
    truncate: int = ...,
) -> Connection:
    """As a sink: Standard output, a small table for each batch.

    rows: Maximum number of rows of a batch that are shown.
    truncate: Maximum number of characters of a value.
    """

def files(
    path: _Text,
    *,
    format: Literal["json", "csv", "text", "parquet", "orc"] = ...,
    schema: _Text | StructType | None = ...,
    include: _Text | Sequence[_Text] = ...,
    on_bad: Literal["dead_letter", "drop", "fail"] = ...,
    decoder: Literal["arrow", "spark"] = ...,
    header: bool = ...,
    separator: _Text = ...,
    only: _Text | None = ...,
    recursive: bool = ...,
    max_files: int | None = ...,
    after: Literal["keep", "archive", "delete"] = ...,
    archive: _Text | None = ...,
    partition_by: _Text | Sequence[_Text] = ...,
    options: Mapping[str, Any] | None = ...,
    **more: Any,
) -> Connection:
    """As a source: Files of a folder, each read once when it appears; static: true reads those that are there.
    As a sink: Files in a folder, a few for each batch; what Spark reads of it is exactly what was committed.

    format: What the files are.
    schema: The columns, in Spark's DDL: id string NOT NULL, at timestamp.
    include: Columns to keep beside the decoded ones: file, modified.
    on_bad: What becomes of a record that cannot be decoded.
    decoder: What decodes json and csv: arrow, in columns; or spark, with from_json and from_csv, which forgive more.
    path: The folder, or a pattern as logs/*.json.
    header: For csv: the first line of a file names the columns.
    separator: For csv: what stands between values.
    only: Only files whose name matches this pattern, as *.csv.
    recursive: Files of the folders within as well.
    max_files: Maximum number of new files in a batch.
    after: What becomes of a file that was read.
    archive: With after: archive, the folder they are moved to.
    partition_by: A folder for each value of these columns.
    options: More options of Spark's writer, as {compression: zstd}.
    """

def flume(
    topic: _Text | Sequence[_Text],
    *,
    format: _Text = ...,
    schema: _Text | StructType | None = ...,
    include: _Text | Sequence[_Text] | None = ...,
    on_bad: Literal["dead_letter", "drop", "fail"] = ...,
    decoder: Literal["arrow", "spark"] = ...,
    alignment: Literal["event_time", "arrival", "off"] = ...,
    idle_after: _Text | float = ...,
    start: _Text | Mapping[str, Any] = ...,
    max_per_batch: int | None = ...,
    isolation: Literal["read_committed", "read_uncommitted"] = ...,
    on_data_loss: Literal["fail", "continue"] = ...,
    min_tasks: int | None = ...,
    config: Mapping[str, Any] | None = ...,
    listen: _Text = ...,
    allow: _Text | Sequence[_Text] = ...,
    key: _Text | None = ...,
    max_bytes: int = ...,
    **more: Any,
) -> Connection:
    """As a source: Events of Flume's agents, which send them with their Avro sink; they are kept in a topic and read from there.

    format: What the bytes are: json, csv, text, avro or raw.
    schema: The columns, in Spark's DDL: id string NOT NULL, at timestamp.
    include: Columns to keep beside the decoded ones.
    on_bad: What becomes of a record that cannot be decoded.
    decoder: What decodes json and csv: arrow, in columns; or spark, with from_json and from_csv, which forgive more.
    alignment: By what a batch of a backlog is cut across partitions, if the query has a watermark: the event times of its records, the times that the system gave them (arrival), or off: each partition gives its share.
    idle_after: Records of a backlog wait for older ones of other partitions that are there already, or arrive within this time; for later ones only while event time moves there as fast as the clock.
    topic: The topic that keeps the events.
    start: Where to begin: earliest, latest, a time, 1h ago, or offsets as {posts: {0: 23}}.
    max_per_batch: Maximum number of records in a batch.
    isolation: Whether records of open and aborted transactions are read.
    on_data_loss: When records are deleted before they were read.
    min_tasks: Minimum number of tasks that read, even from fewer partitions.
    config: More properties of the Kafka consumer, in Java's names.
    listen: Where the agents send to, as HOST:PORT.
    allow: Who may send: addresses and networks. Beyond this machine it is needed.
    key: The header whose value becomes the record's key.
    max_bytes: The largest batch that is taken from an agent, in bytes.
    """

def foreach(
    call: Any,
    *,
    batch: bool = ...,
) -> Connection:
    """As a sink: A function of a row, an object with open, process and close, or with `batch: true` a function of a DataFrame.

    call: A function or object; in YAML where it is, as ./handlers.py:shout.
    batch: The function takes (DataFrame, batch id), once a batch.
    """

def kafka(
    topic: _Text | Sequence[_Text] = ...,
    *,
    format: Literal["json", "csv", "text", "raw", "avro"] | _Text = ...,
    schema: _Text | StructType | None = ...,
    include: _Text | Sequence[_Text] | None = ...,
    on_bad: Literal["dead_letter", "drop", "fail"] = ...,
    decoder: Literal["arrow", "spark"] = ...,
    alignment: Literal["event_time", "arrival", "off"] = ...,
    idle_after: _Text | float = ...,
    pattern: _Text | None = ...,
    partitions: Mapping[str, Any] | None = ...,
    start: _Text | Mapping[str, Any] = ...,
    max_per_batch: int | None = ...,
    isolation: Literal["read_committed", "read_uncommitted"] = ...,
    on_data_loss: Literal["fail", "continue"] = ...,
    min_tasks: int | None = ...,
    current: bool = ...,
    config: Mapping[str, Any] | None = ...,
    key: _Text | Sequence[_Text] = ...,
    value: _Text | Sequence[_Text] = ...,
    topic_column: _Text | None = ...,
    partition: _Text | None = ...,
    headers: _Text | None = ...,
    guarantee: Literal["exactly-once", "at-least-once"] = ...,
    avro_schema: _Text | None = ...,
    registry: _Text | None = ...,
    **more: Any,
) -> Connection:
    """As a source: Topics of a Kafka cluster.
    As a sink: A topic of a Kafka cluster; it is made if it is not there.

    format: What the bytes are: json, csv, text, avro or raw.
    schema: The columns, in Spark's DDL: id string NOT NULL, at timestamp.
    include: Columns to keep beside the decoded ones.
    on_bad: What becomes of a record that cannot be decoded.
    decoder: What decodes json and csv: arrow, in columns; or spark, with from_json and from_csv, which forgive more.
    alignment: By what a batch of a backlog is cut across partitions, if the query has a watermark: the event times of its records, the times that the system gave them (arrival), or off: each partition gives its share.
    idle_after: Records of a backlog wait for older ones of other partitions that are there already, or arrive within this time; for later ones only while event time moves there as fast as the clock.
    topic: The topic, or several.
    pattern: Every topic whose name matches this regular expression.
    partitions: Only these partitions, as {posts: [0, 1]}.
    start: Where to begin: earliest, latest, a time, 1h ago, or offsets as {posts: {0: 23}}.
    max_per_batch: Maximum number of records in a batch.
    isolation: Whether records of open and aborted transactions are read.
    on_data_loss: When records are deleted before they were read.
    min_tasks: Minimum number of tasks that read, even from fewer partitions.
    current: Read the generation of the topic that counts, where replay has made several.
    config: More properties of the Kafka consumer, in Java's names.
    key: The column that is the record's key, or several.
    value: The columns that make the value.
    topic_column: A column that names each record's topic.
    partition: A column that gives each record's partition.
    headers: A column of headers: array<struct<key: string, value: binary>>.
    guarantee: Whether rows go in transactions, or by Spark's own sink, which may write a batch twice after a crash.
    avro_schema: For avro: the schema, or a file of it.
    registry: For avro: the address of a schema registry.
    """

def kinesis(
    argument: _Text = ...,
    /,
    *,
    stream: _Text = ...,
    name: _Text = ...,
    format: Literal["json", "csv", "text", "raw"] | _Text = ...,
    schema: _Text | StructType | None = ...,
    include: _Text | Sequence[_Text] | None = ...,
    on_bad: Literal["dead_letter", "drop", "fail"] = ...,
    decoder: Literal["arrow", "spark"] = ...,
    alignment: Literal["event_time", "arrival", "off"] = ...,
    idle_after: _Text | float = ...,
    region: _Text | None = ...,
    endpoint: _Text | None = ...,
    retry_timeout: _Text | float = ...,
    profile: _Text | None = ...,
    access_key: _Text | None = ...,
    secret_key: _Text | None = ...,
    session_token: _Text | None = ...,
    role: _Text | None = ...,
    start: _Text = ...,
    max_per_batch: int | None = ...,
    poll: _Text | float = ...,
    on_data_loss: Literal["fail", "continue"] = ...,
    key: _Text | Sequence[_Text] = ...,
    value: _Text | Sequence[_Text] = ...,
    largest: int = ...,
    **more: Any,
) -> Connection:
    """As a source: A stream of Kinesis: its shards, with those that splits and merges make of them.
    As a sink: A stream of Kinesis; it must be there. Records that are refused for want of capacity are sent again.

    format: What the bytes are: json, csv, text, avro or raw.
    schema: The columns, in Spark's DDL: id string NOT NULL, at timestamp.
    include: Columns to keep beside the decoded ones.
    on_bad: What becomes of a record that cannot be decoded.
    decoder: What decodes json and csv: arrow, in columns; or spark, with from_json and from_csv, which forgive more.
    alignment: By what a batch of a backlog is cut across partitions, if the query has a watermark: the event times of its records, the times that the system gave them (arrival), or off: each partition gives its share.
    idle_after: Records of a backlog wait for older ones of other partitions that are there already, or arrive within this time; for later ones only while event time moves there as fast as the clock.
    region: The region of AWS.
    endpoint: Another address of the service, as http://127.0.0.1:4567.
    retry_timeout: How long requests are repeated while the service is away or has no capacity.
    profile: A profile of the AWS settings.
    access_key: The id of a key.
    secret_key: The key.
    session_token: The token of a temporary key.
    role: The ARN of a role to take on.
    stream: The stream.
    start: Where to begin: earliest, latest, a time, or 1h ago.
    max_per_batch: Maximum number of Kinesis records in a batch.
    poll: How often a shard is asked that had nothing new.
    on_data_loss: When records are deleted before they were read.
    name: The stream.
    key: The column that is the partition key, or several.
    value: The columns that make the record.
    largest: Bytes that the stream takes in a record, with its key.
    """

def memory(
    name: _Text | None = ...,
    *,
    key: _Text | Sequence[_Text] = ...,
    rows: int = ...,
) -> Connection:
    """As a sink: A table in memory; `millrace query` reads it while the pipeline runs.

    name: The table's name.
    key: In update mode: columns whose newest row replaces the one before.
    rows: About how many rows are kept, the newest.
    """

def rate(
    rows: int = ...,
    *,
    partitions: int | None = ...,
    per_batch: bool = ...,
) -> Connection:
    """As a source: Rows of timestamp and value at a constant rate.

    rows: Rows a second.
    partitions: Number of partitions.
    per_batch: Count rows for each batch instead of each second.
    """

def socket(
    address: _Text,
    *,
    format: _Text = ...,
    schema: _Text | StructType | None = ...,
    include: _Text | Sequence[_Text] | None = ...,
    on_bad: Literal["dead_letter", "drop", "fail"] = ...,
    decoder: Literal["arrow", "spark"] = ...,
    **more: Any,
) -> Connection:
    """As a source: Lines that a TCP server sends. Spark keeps none of them: a restart begins at what comes then.

    format: What a line is: json, csv, text or raw.
    schema: The columns, in Spark's DDL: id string NOT NULL, at timestamp.
    include: Columns to keep beside the decoded ones.
    on_bad: What becomes of a record that cannot be decoded.
    decoder: What decodes json and csv: arrow, in columns; or spark, with from_json and from_csv, which forgive more.
    address: HOST:PORT of the server.
    """

def spark(
    format: _Text,
    *,
    schema: _Text | StructType | None = ...,
    **more: Any,
) -> Connection:
    """As a source: A format of Spark's or of a jar that was added; static: true reads it whole, as jdbc.
    As a sink: A format of Spark's or of a jar that was added.

    format: The format's name, as jdbc or delta.
    schema: The columns, in Spark's DDL.
    """

def series(
    *,
    time: str,
    value: str,
    key: str | None = ...,
    title: str | float | None = ...,
) -> _Picture:
    """Lines over time.

    time: A column of time, or a window.
    value: The number that is drawn.
    key: One line for each of its values.
    title: What stands above it; the table's name if nothing is given.
    """

def top(
    *,
    label: str,
    value: str,
    limit: int | None = ...,
    title: str | float | None = ...,
) -> _Picture:
    """The largest values, as bars; of a windowed table, those of the window that is going on.

    label: What each bar is called.
    value: How long it is.
    limit: How many.
    title: What stands above it; the table's name if nothing is given.
    """

def table(
    *,
    columns: str | Sequence[str] | None = ...,
    order: str | None = ...,
    limit: int | None = ...,
    key: str | Sequence[str] | None = ...,
    title: str | float | None = ...,
) -> _Picture:
    """Rows as they are, the newest first.

    columns: Which columns; all if nothing is given.
    order: A column to sort by, as: count desc.
    limit: How many rows.
    key: Columns whose newest row replaces the one before.
    title: What stands above it; the table's name if nothing is given.
    """

def heat(
    *,
    x: str,
    y: str,
    value: str,
    title: str | float | None = ...,
) -> _Picture:
    """A grid that is coloured by a number.

    x: What goes from left to right: a time, a window or anything.
    y: What goes from top to bottom.
    value: The number that colours a cell.
    title: What stands above it; the table's name if nothing is given.
    """

def number(
    *,
    value: str,
    unit: str | float | None = ...,
    title: str | float | None = ...,
) -> _Picture:
    """One number, the newest.

    value: The number.
    unit: What stands behind it.
    title: What stands above it; the table's name if nothing is given.
    """

def __getattr__(name: str) -> Callable[..., Connection]:
    """A connector of an installed plug-in."""
