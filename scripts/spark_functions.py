"""Writes the names of Spark's SQL functions, which `millrace check` knows without Spark.

    .venv/bin/python scripts/spark_functions.py

Run it after an upgrade of PySpark; tests/pipeline/test_spark_functions.py compares the file with Spark.
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from millrace.pipeline.spark_functions import LIST


def functions(spark: SparkSession) -> list[str]:
    """Return the names of Spark's own functions without its operators, in order."""
    names = {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    return sorted(name for name in names if re.fullmatch(r"[a-z_][a-z0-9_]*", name))


def main() -> None:
    """Write the list."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        names = functions(spark)
    finally:
        spark.stop()
    LIST.write_text("\n".join(names) + "\n", "utf-8")
    print(f"{len(names)} functions in {LIST.name}")


if __name__ == "__main__":
    main()
