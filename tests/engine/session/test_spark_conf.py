"""What is chosen for Spark, and that the user's own choice wins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from millrace.engine.session.spark_conf import LOCAL, REALTIME, is_local, merge_conf, spark_choices, speed_choices
from millrace.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = "spark.sql.optimizer.excludedRules"
CORES = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


def chosen(**how: object) -> dict[str, str]:
    return merge_conf(spark_choices(**how), {})  # type: ignore[arg-type]


def test_every_core_and_as_many_shuffle_partitions() -> None:
    assert chosen()["spark.master"] == LOCAL
    assert chosen()["spark.sql.shuffle.partitions"] == CORES
    assert chosen(master="local[1]")["spark.sql.shuffle.partitions"] == "1"
    assert chosen(master="local")["spark.sql.shuffle.partitions"] == "1"


@pytest.mark.parametrize("master", ["local[0]", "local[]", "local[a]", "spark://there", "nowhere"])
def test_a_master_that_is_none(master: str) -> None:
    with pytest.raises(InvalidOption, match="there is no Spark master"):
        spark_choices(master=master)


def test_what_is_given_wins() -> None:
    held = merge_conf(spark_choices(), {"spark.ui.enabled": "true", "spark.mine": "1"})
    assert (held["spark.ui.enabled"], held["spark.mine"]) == ("true", "1")


def test_the_collector_is_chosen_for_batches_here_unless_java_is_told_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    options = "spark.driver.extraJavaOptions"
    assert "ParallelGC" in chosen()[options]
    assert options not in chosen(realtime=True)
    assert options not in chosen(master="yarn")
    assert merge_conf(spark_choices(), {options: "-XX:+UseZGC"})[options] == "-XX:+UseZGC"
    assert merge_conf(spark_choices(), {options: "-Da=b"})[options] == "-XX:+UseParallelGC -Da=b"
    elsewhere = {"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}
    assert options not in merge_conf(spark_choices(given=elsewhere), elsewhere)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xss1m -XX:+UseZGC")
    assert options not in chosen()


def test_nothing_of_this_machine_is_forced_on_a_cluster() -> None:
    on_cluster = chosen(master="spark://there:7077")
    assert on_cluster["spark.master"] == "spark://there:7077"
    assert "spark.driver.memory" not in on_cluster


@pytest.mark.parametrize(
    ("master", "given", "partitions"),
    [
        ("spark://there:7077", {}, "16"),
        ("spark://there:7077", {"spark.cores.max": "6"}, "6"),
        ("yarn", {}, "2"),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, "12"),
        ("yarn", {"spark.executor.cores": "4", "spark.dynamicAllocation.enabled": "true"}, "16"),
        ("k8s://https://there", {"spark.executor.cores": "4"}, "8"),
        ("yarn", {"spark.sql.shuffle.partitions": "5", "spark.executor.cores": "4"}, "5"),
    ],
)
def test_on_a_cluster_partitions_follow_from_what_is_asked_for(
    master: str, given: dict[str, str], partitions: str
) -> None:
    """A checkpoint keeps them: they must not depend on which executors have come."""
    assert merge_conf(spark_choices(master=master, given=given), given)["spark.sql.shuffle.partitions"] == partitions


def test_a_program_that_is_not_ours_keeps_its_partitions_there() -> None:
    assert "spark.sql.shuffle.partitions" not in merge_conf(speed_choices(master="yarn"), {})


def test_cores_that_are_no_number() -> None:
    with pytest.raises(InvalidOption):
        spark_choices(master="yarn", given={"spark.executor.cores": "many"})


def test_real_time_mode_has_slots_to_spare_and_parses_json_once() -> None:
    real = chosen(realtime=True)
    assert real["spark.master"] == REALTIME
    assert int(real["spark.sql.shuffle.partitions"]) <= int(CORES)
    assert "PushPredicateThroughNonJoin" in real[RULES]
    assert "PushPredicateThroughNonJoin" not in chosen()[RULES]
    assert "PushPredicateThroughNonJoin" in merge_conf(speed_choices(realtime=True), {})[RULES]


def test_programs_of_others_keep_their_time_zone() -> None:
    assert "spark.sql.session.timeZone" not in merge_conf(speed_choices(), {})
    assert chosen()["spark.sql.session.timeZone"] == "UTC"


def test_only_pipelines_do_without_reused_exchanges() -> None:
    assert chosen()["spark.sql.exchange.reuse"] == "false"
    assert "spark.sql.exchange.reuse" not in merge_conf(speed_choices(), {})


def test_only_pipelines_have_plans_that_do_not_depend_on_sizes() -> None:
    assert RULES not in merge_conf(speed_choices(), {})
    for realtime in (False, True):  # a session may have queries in real-time mode and others
        assert "PushDownLeftSemiAntiJoin" in chosen(realtime=realtime)[RULES]
        assert "RemoveNoopUnion" in chosen(realtime=realtime)[RULES]


def test_rules_that_a_user_excludes_are_excluded_besides_ours() -> None:
    given = merge_conf(spark_choices(), {RULES: "a.Rule"})[RULES]
    assert set(given.split(",")) == {"a.Rule", *chosen()[RULES].split(",")}


def test_every_choice_has_a_reason() -> None:
    assert all(choice.why for choice in spark_choices(realtime=True))


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[4]", True),
        ("local[4,2]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host", False),
    ],
)
def test_which_masters_are_this_machine(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.parametrize("master", ["locl[2]", "spark:/there:7077", "spark://there", "yarn-client", ""])
def test_a_master_that_cannot_be(master: str) -> None:
    with pytest.raises(InvalidOption):
        chosen(master=master or " ")


def test_the_settings_hold(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "65536"
    assert spark.sparkContext.uiWebUrl is None
