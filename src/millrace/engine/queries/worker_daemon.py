"""Spark's parent of Python workers, with what they need loaded once, before it forks them: run by Spark."""

import gc

import pandas  # type: ignore[import-untyped] # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark.daemon import manager

import millrace.dead_letters.kafka_writer
import millrace.engine.queries.decoding
import millrace.formats.json_decoder  # noqa: F401

if __name__ == "__main__":
    # A worker collects its garbage after every task: 50 ms each time if it also looked at all that is loaded here.
    gc.freeze()
    manager()
