"""Settings that were given to Spark and that it will not read: it takes any name, and says nothing of a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS_TO_KNOW = "spark.sql."
"""Of these Spark has a list; others are read by name here and there."""
_NAMED_FREELY = ("spark.sql.catalog.", "spark.sql.extensions")


def unread(spark: SparkSession, given: Iterable[str]) -> list[str]:
    """A sentence for each name that Spark does not know, with the one that may be meant."""
    jvm: Any = spark._jvm
    entries = jvm.org.apache.spark.internal.config.ConfigEntry
    unknown = [
        key
        for key in given
        if key.startswith(_OURS_TO_KNOW) and not key.startswith(_NAMED_FREELY) and entries.findEntry(key) is None
    ]
    if not unknown:
        return []
    defined = spark._jsparkSession.sessionState().conf().getAllDefinedConfs()
    known = [defined.apply(number)._1() for number in range(defined.size())]
    return [_sentence(key, known) for key in unknown]


def _sentence(key: str, known: list[str]) -> str:
    meant = get_close_matches(key, known, 1)
    return f"Spark knows no setting {key}, and leaves it unread" + (f"; is {meant[0]} meant?" if meant else "")
