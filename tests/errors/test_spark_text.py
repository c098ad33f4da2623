"""Spark's words, cleaned; where in the user's files, and which records."""

from __future__ import annotations

from millrace.engine.checkpoints.checkpoint import batch_ranges
from millrace.errors import SourceLocation
from millrace.errors.spark_text import is_user_file, plain_text, python_error_in, sql_position

FAILED = """[STREAM_FAILED] Query [id = fd31, runId = e7fe] terminated with exception: [CAST_INVALID_INPUT] \
The value 'x0' cannot be cast. SQLSTATE: 22018
== DataFrame ==
"cast" was called from
/home/me/pipeline.py:34
 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: q [id = fd31, runId = e7fe]
Current Committed Offsets: {KafkaV2[Subscribe[t2, t3]]: {"t2":{"0":50,"1":7},"t3":{"0":5}}}
Current Available Offsets: {KafkaV2[Subscribe[t2, t3]]: {"t2":{"0":100,"1":7},"t3":{"0":6}},\
FileStreamSource[x]: {"logOffset":0}}

Current State: ACTIVE"""
TRACEBACK = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 4207, in invoke_udf
    func, profiler = read_udfs(
                     ^^^^^^^^^^
  File "/home/me/pipeline.py", line 7, in clean
    return strict(text)
           ^^^^^^^^^^^^
  File "/home/me/words.py", line 3, in strict
    raise ValueError("no: such, word")
  File "/venv/lib/python3.11/site-packages/other/deep.py", line 3, in deep
    pass
ValueError: no: such, word
 SQLSTATE: 38000
"""


def test_codes_plans_and_stack_traces_are_left_out() -> None:
    assert plain_text(FAILED) == "The value 'x0' cannot be cast."
    assert plain_text("Sorting is not supported on streaming DataFrames;\n~Sort [value#1L ASC]\n+- ~Relation") == (
        "Sorting is not supported on streaming DataFrames"
    )
    java = "An error occurred while calling o1.load.\n: org.apache.spark.SparkException: it is broken\n\tat a.B(D:1)\n"
    assert plain_text(java) == "it is broken"
    stage = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: java.io.IOException: no\n\tat x"
    assert plain_text(stage) == "no"


def test_the_records_of_the_batch() -> None:
    assert [str(one) for one in batch_ranges(FAILED)] == [
        "topic t2 partition 0 offsets 50-99",
        "topic t3 partition 0 offsets 5-5",
    ]
    first = FAILED.replace('{KafkaV2[Subscribe[t2, t3]]: {"t2":{"0":50,"1":7},"t3":{"0":5}}}', "{}")
    assert str(batch_ranges(first)[0]) == "topic t2 partition 0 offsets up to 99"
    assert batch_ranges("nothing of that kind") == []
    assert batch_ranges('Current Available Offsets: {KafkaV2[x]: {"broken') == []


def test_a_position_in_sql() -> None:
    assert sql_position("[PARSE_SYNTAX_ERROR] Syntax error. SQLSTATE: 42601 (line 3, pos 4)") == (3, 5)
    assert sql_position("cannot be found. SQLSTATE: 42P01; line 2 pos 2;") == (2, 3)
    assert sql_position("no position") is None


def test_the_last_line_of_the_users_own() -> None:
    found = python_error_in(TRACEBACK)
    assert found
    assert found.user_frame
    assert (found.place, found.user_frame.function) == (SourceLocation("/home/me/words.py", 3), "strict")
    assert str(found) == "ValueError: no: such, word"
    assert python_error_in("no traceback") is None
    assert python_error_in("Traceback (most recent call last):\n  File") is None


def test_whose_file_it_is() -> None:
    import json

    import pyspark

    import millrace.errors

    assert is_user_file("/home/me/pipeline.py")
    assert not is_user_file("<frozen runpy>")
    assert not is_user_file("/x/site-packages/pyspark/sql/session.py")
    assert not is_user_file("/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py")
    assert is_user_file("/home/me/pyspark/pipeline.py")
    assert not is_user_file(pyspark.__file__)
    assert not is_user_file(json.__file__)
    assert not is_user_file(str(millrace.errors.__file__))


PROXY = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o201.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 8.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 8.0 (TID 8) (localhost executor driver): org.apache.kafka.common.errors.\
TimeoutException: Timeout of 60000ms expired before the position for partition nums-0 could be determined

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2855)
\t... 1 more
Caused by: org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the position for \
partition nums-0 could be determined

"""
POSITION = "Timeout of 60000ms expired before the position for partition nums-0 could be determined"


def test_of_a_traceback_that_came_through_java_the_root_is_said() -> None:
    assert plain_text(PROXY) == POSITION
    assert plain_text(PROXY.partition("\nCaused by")[0]) == POSITION
    assert plain_text(f"[STREAM_FAILED] Query [id = f] terminated with exception: {PROXY}") == POSITION
    assert plain_text(TRACEBACK) == "ValueError: no: such, word"
    called = PROXY.replace("/venv/lib/python3.11/site-packages/py4j/protocol.py", "/home/me/pipeline.py")
    assert str(python_error_in(called)) == f"Py4JJavaError: {POSITION}"
    assert plain_text("Return Message: Traceback (most recent call last):\n  File") == "Return Message:"
