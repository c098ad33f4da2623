"""The jobs in the Table API of PyFlink."""

import os

from pyflink.table import EnvironmentSettings, TableEnvironment

JOB = os.environ["JOB"]
AT_REST = JOB in ("windowed", "filtered")
LIVE = AT_REST or JOB in ("stateless", "keyed")
ADDRESS = f"'properties.bootstrap.servers' = '{os.environ['BOOTSTRAP']}'"
SOURCE = f"""
    'connector' = 'kafka', 'topic' = '{os.environ["SOURCE"]}', {ADDRESS}, 'scan.startup.mode' = 'earliest-offset',
    'properties.group.id' = 'flink', 'properties.isolation.level' = 'read_committed'
"""
TARGET = f"'topic' = '{os.environ['TARGET']}', {ADDRESS}"
ONCE = f"""
    'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'flink-{os.environ["TARGET"]}',
    'properties.transaction.timeout.ms' = '600000'
"""
APPEND = f"'connector' = 'kafka', {TARGET}"
UPSERT = f"'connector' = 'upsert-kafka', {TARGET}, 'key.format' = 'json', 'value.format' = 'json'"
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.jars": os.environ["JARS"],
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "execution.checkpointing.interval": "200 ms" if AT_REST else "1 s" if JOB == "once" else "5 s",
    "execution.checkpointing.dir": f"file://{os.environ['FOLDER']}/checkpoints",
}
SLOWER = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "500 ms",
    "table.exec.mini-batch.size": "50000",
}
AT_ONCE = {"execution.buffer-timeout.interval": "1 ms"}
RECORDS = f"CREATE TABLE records (`key` BIGINT, `at` BIGINT) WITH ({SOURCE}, 'format' = 'json')"
COUNTS = f"CREATE TABLE results (`key` BIGINT, `count` BIGINT, PRIMARY KEY (`key`) NOT ENFORCED) WITH ({UPSERT})"
COUNTED = "INSERT INTO results SELECT `key`, COUNT(*) FROM records GROUP BY `key`"
PASSED = "CREATE TABLE results (`key` BIGINT, `at` BIGINT, even BOOLEAN)"
TAKEN = "INSERT INTO results SELECT `key`, `at`, MOD(`key`, 2) = 0 FROM records WHERE `key` >= 0"
JOBS = {
    "words": [
        f"CREATE TABLE texts (line STRING) WITH ({SOURCE}, 'format' = 'raw')",
        f"CREATE TABLE results (word STRING, `count` BIGINT, PRIMARY KEY (word) NOT ENFORCED) WITH ({UPSERT})",
        """
        INSERT INTO results SELECT word, COUNT(*)
        FROM texts CROSS JOIN UNNEST(SPLIT(line, ' ')) AS t (word) GROUP BY word
        """,
    ],
    "ads": [
        f"""
        CREATE TABLE events (
            ad_id STRING, event_type STRING, event_time BIGINT, `at` AS TO_TIMESTAMP_LTZ(event_time, 3),
            WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
        ) WITH ({SOURCE}, 'format' = 'json')
        """,
        f"CREATE TABLE results (campaign STRING, `window` BIGINT, `count` BIGINT) WITH ({APPEND}, 'format' = 'json')",
        "CREATE TEMPORARY FUNCTION campaign_of AS 'CampaignOf' LANGUAGE JAVA",
        """
        CREATE TEMPORARY VIEW seen AS
        SELECT campaign_of(ad_id) AS campaign, `at` FROM events WHERE event_type = 'view'
        """,
        """
        INSERT INTO results
        SELECT campaign,
            TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) * CAST(1000 AS BIGINT), COUNT(*)
        FROM TABLE(TUMBLE(TABLE seen, DESCRIPTOR(`at`), INTERVAL '10' SECONDS))
        GROUP BY campaign, window_start, window_end
        """,
    ],
    "once": [
        f"CREATE TABLE texts (line BYTES) WITH ({SOURCE}, 'format' = 'raw')",
        f"""
        CREATE TABLE results (line BYTES) WITH (
            {APPEND}, 'format' = 'raw', {ONCE}
        )
        """,
        "INSERT INTO results SELECT line FROM texts",
    ],
    "state": [RECORDS, COUNTS, COUNTED],
    "keyed": [RECORDS, COUNTS, COUNTED],
    "stateless": [RECORDS, f"{PASSED} WITH ({APPEND}, 'format' = 'json')", TAKEN],
    "filtered": [RECORDS, f"{PASSED} WITH ({APPEND}, 'format' = 'json', {ONCE})", TAKEN],
    # Not a windowing function: that gives a window's count only when the window ends.
    "windowed": [
        RECORDS,
        f"""
        CREATE TABLE results (
            `key` BIGINT, `window` BIGINT, `count` BIGINT, PRIMARY KEY (`key`, `window`) NOT ENFORCED
        ) WITH ({UPSERT}, {ONCE})
        """,
        """
        INSERT INTO results SELECT `key`, `at` / 10000 * 10000, COUNT(*) FROM records
        GROUP BY `key`, `at` / 10000 * 10000
        """,
    ],
}

env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
for key, value in {**SETTINGS, **(AT_ONCE if LIVE else SLOWER)}.items():
    env.get_config().set(key, value)
*tables, last = JOBS[JOB]
for statement in tables:
    env.execute_sql(statement)
env.execute_sql(last).wait()
