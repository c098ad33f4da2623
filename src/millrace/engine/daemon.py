"""Spark's parent of Python workers, with what they need loaded once, before it forks them: run by Spark."""

import pandas  # type: ignore[import-untyped] # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark.daemon import manager

import millrace.connectors.undertaking
import millrace.engine.decode
import millrace.formats.json_decoder  # noqa: F401

if __name__ == "__main__":
    manager()
