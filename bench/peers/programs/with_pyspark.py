"""The jobs in PySpark, as textbooks have them; with TUNED, as somebody writes them who knows Spark well."""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

JOB, TUNED = os.environ["JOB"], bool(os.environ["TUNED"])
EVENT = (
    "user_id string, page_id string, ad_id string, ad_type string, event_type string, event_time bigint, "
    "ip_address string"
)
NEEDED = "ad_id string, event_type string, event_time bigint"
LIVE = JOB in ("stateless", "keyed")
AT_REST = JOB in ("windowed", "filtered")
RULES = "org.apache.spark.sql.catalyst.optimizer"


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[*]").appName(JOB).config("spark.jars", os.environ["JARS"])
    if TUNED:
        manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "4g",
            "spark.sql.streaming.checkpointFileManagerClass": manager,
            # A filter that is pushed below from_json parses every record twice.
            "spark.sql.optimizer.excludedRules": f"{RULES}.PushDownPredicates,{RULES}.PushPredicateThroughNonJoin",
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        if LIVE:
            builder = builder.master("local[16]")
    return builder.getOrCreate()


def messages(spark: SparkSession) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", os.environ["SOURCE"])
        .option("startingOffsets", "earliest")
    )
    if TUNED and not LIVE and not AT_REST:
        reader = reader.option("kafka.max.partition.fetch.bytes", str(8 * 2**20))
        reader = reader.option("kafka.fetch.min.bytes", str(2**20)).option("kafka.fetch.max.wait.ms", "100")
    return reader.load()


def words(lines: DataFrame) -> DataFrame:
    split = lines.select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))
    return split.groupBy("word").count()


def ads(lines: DataFrame) -> DataFrame:
    campaigns = lines.sparkSession.read.schema("ad_id string, campaign_id string").json(os.environ["CAMPAIGNS"])
    schema = NEEDED if TUNED else EVENT
    events = lines.select(F.from_json(F.col("value").cast("string"), schema).alias("event")).select("event.*")
    views = events.where("event_type = 'view'").withColumn("at", F.timestamp_millis("event_time"))
    joined = views.withWatermark("at", "10 seconds").join(F.broadcast(campaigns), "ad_id")
    counts = joined.groupBy("campaign_id", F.window("at", "10 seconds").alias("w")).count()
    return counts.select(F.col("campaign_id").alias("campaign"), F.unix_millis("w.start").alias("window"), "count")


def records(lines: DataFrame) -> DataFrame:
    parsed = F.from_json(F.col("value").cast("string"), "key bigint, at bigint")
    return lines.select(parsed.alias("record")).select("record.*")


def state(lines: DataFrame) -> DataFrame:
    return records(lines).groupBy("key").count()


def windowed(lines: DataFrame) -> DataFrame:
    seen = records(lines).withColumn("at", F.timestamp_millis("at")).withWatermark("at", "5 seconds")
    counts = seen.groupBy("key", F.window("at", "10 seconds").alias("w")).count()
    return counts.select("key", F.unix_millis("w.start").alias("window"), "count")


def stateless(lines: DataFrame) -> DataFrame:
    return records(lines).where("key >= 0").selectExpr("key", "at", "key % 2 = 0 AS even")


spark = session()
spark.sparkContext.setLogLevel("WARN")
jobs = {"words": words, "ads": ads, "state": state, "windowed": windowed}
jobs |= {"stateless": stateless, "filtered": stateless, "keyed": state}
results = jobs[JOB](messages(spark))
writer = (
    results.select(F.to_json(F.struct("*")).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP"])
    .option("topic", os.environ["TARGET"])
    .option("checkpointLocation", os.environ["FOLDER"] + "/checkpoint")
    .outputMode("update")
)
if TUNED and LIVE:
    writer = writer.trigger(realTime="5 minutes")
writer.start().awaitTermination()
