"""Every error that Millrace raises on purpose: one tree, each with a condition id, a place and a hint.

    MillraceError                    exit  condition
    ├── InputError                      2  what was typed or given is wrong
    │   ├── InvalidOption               2  option.invalid
    │   ├── InvalidSetting              2  setting.invalid
    │   ├── UnknownName                 2  name.unknown
    │   ├── PluginUnusable              2  plugin.unusable
    │   ├── InvalidDefinition           2  pipeline.invalid
    │   │   └── InvalidTest             2  test.invalid
    │   ├── InvalidSchema               2  schema.invalid
    │   ├── InvalidSql                  2  sql.invalid
    │   ├── StateMismatch               2  state.mismatch
    │   ├── InvalidQuery                2  spark.analysis
    │   ├── CheckpointIncompatible      2  checkpoint.incompatible
    │   ├── CheckpointUnusable          2  checkpoint.unusable
    │   ├── InvalidStreams              2  dstreams.invalid
    │   ├── InvalidReplay               2  replay.invalid
    │   ├── NotUtf8                     2  input.not-utf8
    │   ├── FileUnusable                2  file.unusable
    │   ├── PortInUse                   2  port.in-use
    │   ├── DataDirInUse                2  kafka.data-in-use
    │   ├── DataDirMismatch             2  kafka.data-mismatch
    │   ├── NoCluster                   2  kafka.none
    │   ├── AccessDenied                2  kafka.access-denied
    │   ├── FeedInUse                   2  feed.in-use
    │   ├── UnknownTopic                2  kafka.topic-unknown
    │   ├── InvalidTopic                2  kafka.topic-invalid
    │   ├── UnknownGroup                2  kafka.group-unknown
    │   ├── GroupInUse                  2  kafka.group-in-use
    │   ├── NoCassandra                 2  cassandra.none
    │   ├── CassandraDenied             2  cassandra.access-denied
    │   ├── CassandraInUse              2  cassandra.data-in-use
    │   ├── CassandraMismatch           2  cassandra.data-mismatch
    │   ├── UnknownTable                2  cassandra.table-unknown
    │   ├── InvalidTable                2  cassandra.table-invalid
    │   ├── InvalidCql                  2  cassandra.cql-invalid
    │   ├── MissingExtra                2  extra.missing
    │   ├── KinesisDenied               2  kinesis.access-denied
    │   └── UnknownStream               2  kinesis.stream-unknown
    └── RunError                        1  it was asked for rightly and did not work
        ├── JavaUnusable                1  java.unusable
        ├── FetchFailed                 1  jars.fetch-failed
        ├── ServiceFailed               1  service.failed
        ├── KafkaUnreachable            1  kafka.unreachable
        ├── KafkaFailed                 1  kafka.failed
        ├── TopicGone                   1  kafka.topic-gone
        ├── NotDelivered                1  kafka.not-delivered
        │   └── RecordRefused           1  kafka.record-refused
        ├── CommitUnknown               1  kafka.commit-unknown
        ├── TakenOver                   1  kafka.taken-over
        ├── RedriveBusy                 1  dead.redrive-busy
        ├── NotRedrivable               1  dead.not-redrivable
        ├── BadRecord                   1  record.bad
        ├── RegistryUnreachable         1  registry.unreachable
        ├── RegistryRefused             1  registry.refused
        ├── SparkFailed                 1  spark.failed
        ├── ClusterUnfit                1  spark.cluster-unfit
        ├── QueryFailed                 1  query.failed
        ├── FunctionFailed              1  function.failed
        │   └── SinkFailed              1  sink.failed
        ├── NotReady                    1  run.not-ready
        ├── OffsetsGone                 1  kafka.offsets-gone
        ├── DiskFull                    1  disk.full
        ├── CassandraUnreachable        1  cassandra.unreachable
        ├── CassandraFailed             1  cassandra.failed
        ├── RowRefused                  1  cassandra.row-refused
        ├── KinesisUnreachable          1  kinesis.unreachable
        ├── KinesisFailed               1  kinesis.failed
        ├── RecordsGone                 1  kinesis.records-gone
        └── FeedFailed                  1  feed.failed

A message says what is wrong; `why` gives the cause, `hint` what to do, `place` where (`file:line`).
"""

# Each module has one part of the tree; what it imports from elsewhere has an underscore, or is not in its __all__.
from millrace.errors.base import *  # noqa: F403
from millrace.errors.input import *  # noqa: F403
from millrace.errors.systems import *  # noqa: F403
