"""Settings that were given to Spark under a name that it does not have: it takes any, and says nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
LISTED = "spark.sql."
"""Of these Spark has a list, of nearly all; others are read by name here and there."""
_NOT_LISTED = ("spark.sql.streaming.stateStore.rocksdb.", "spark.sql.streaming.checkpointFileManagerClass")
_ALIKE = 0.9
"""How much a name must be like one of the list: extensions read names of their own, which are none of Spark's."""


def doubts(spark: SparkSession, given: Iterable[str]) -> list[str]:
    """A sentence for each name that is almost one of Spark's; a Spark that is built otherwise may not tell."""
    try:
        return _unread(spark, given)
    except Exception:  # a hint ends nothing
        _log.debug("the names of settings could not be looked up", exc_info=True)
        return []


def _unread(spark: SparkSession, given: Iterable[str]) -> list[str]:
    doubtful = [key for key in given if key.startswith(LISTED) and not key.startswith(_NOT_LISTED)]
    if not doubtful:
        return []
    defined = spark._jsparkSession.sessionState().conf().getAllDefinedConfs()
    known = {defined.apply(number)._1() for number in range(defined.size())}
    entries = spark.sparkContext._gateway.jvm.org.apache.spark.internal.config.ConfigEntry
    wrong = [key for key in doubtful if key not in known and entries.findEntry(key) is None]
    return [
        f"Spark has no setting {key}, and may never read it; is {meant} meant?"
        for key in wrong
        for meant in get_close_matches(key, known, 1, _ALIKE)
    ]
