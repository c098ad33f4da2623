"""What a query may do is Spark's to say, and the user's settings for Spark count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from millrace.engine.queries.builder import require_supported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSUPPORTED_CHECK = "spark.sql.streaming.unsupportedOperationCheck"


def test_what_a_stream_cannot_do_is_an_error_unless_a_setting_allows_it(spark: SparkSession) -> None:
    ordered = spark.readStream.format("rate").load().orderBy("value")
    with pytest.raises(AnalysisException):
        require_supported(ordered, "append")
    spark.conf.set(UNSUPPORTED_CHECK, "false")
    try:
        require_supported(ordered, "append")
    finally:
        spark.conf.unset(UNSUPPORTED_CHECK)
