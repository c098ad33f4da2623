"""The list of functions is Spark's own."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from millrace.pipeline.spark_functions import GRAMMAR, INSTEAD, LIST, function_hint, spark_functions

_GRAMMAR = {
    "all": "SELECT 'a' LIKE ALL ('b')",
    "cube": "SELECT count(*) FROM range(1) GROUP BY CUBE(id)",
    "identifier": "SELECT IDENTIFIER('abs')(1)",
    "rollup": "SELECT count(*) FROM range(1) GROUP BY ROLLUP(id)",
    "timestampadd": "SELECT TIMESTAMPADD(DAY, 1, now())",
    "timestampdiff": "SELECT TIMESTAMPDIFF(DAY, now(), now())",
    "try_cast": "SELECT TRY_CAST(1 AS string)",
    "values": "SELECT * FROM (VALUES(1))",
}


def test_the_list_is_that_of_spark(spark: SparkSession) -> None:
    names = {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    words = {name for name in names if re.fullmatch(r"[a-z_][a-z0-9_]*", name)}
    assert set(LIST.read_text("utf-8").split()) == words


def test_words_of_the_grammar_are_those_of_spark(spark: SparkSession) -> None:
    assert set(_GRAMMAR) == GRAMMAR
    assert spark_functions() - GRAMMAR == set(LIST.read_text("utf-8").split())
    for query in _GRAMMAR.values():
        spark.sql(query)  # raises if Spark takes the word for a function that it does not have


def test_only_what_spark_does_not_have_is_replaced() -> None:
    assert spark_functions() & INSTEAD.keys() == set()
    assert function_hint("TUMBLE").startswith("write GROUP BY window(")
    assert function_hint("uper") == "did you mean 'upper'?"
