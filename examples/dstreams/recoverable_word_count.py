"""Counts words since the beginning, also after a crash: checkpoint, getOrCreate, a broadcast list and an accumulator.

Usage: recoverable_word_count.py HOST PORT CHECKPOINT OUTPUT
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext


def excluded_words(sc):
    """A broadcast variable is not in the checkpoint: it is made when it is first asked for.

    The context keeps it: each function of a recovered program has globals of its own.
    """
    if not hasattr(sc, "excluded"):
        sc.excluded = sc.broadcast({"a", "an", "the"})
    return sc.excluded


def dropped_words(sc):
    """Neither is an accumulator: it counts since the last start."""
    if not hasattr(sc, "dropped"):
        sc.dropped = sc.accumulator(0)
    return sc.dropped


def update(new_values, running_count):
    return sum(new_values) + (running_count or 0)


def create_context():
    print("Creating new context")
    sc = SparkContext(appName="RecoverableWordCount")
    ssc = StreamingContext(sc, 1)
    lines = ssc.socketTextStream(host, int(port))
    pairs = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1))

    def without_excluded(rdd):
        excluded, dropped = excluded_words(rdd.context), dropped_words(rdd.context)

        def keep(pair):
            if pair[0] in excluded.value:
                dropped.add(1)
                return False
            return True

        return rdd.filter(keep)

    counts = pairs.transform(without_excluded).updateStateByKey(update)
    counts.checkpoint(1)  # a socket cannot be read again: the state is kept with every batch

    def write(time, rdd):
        found = sorted(rdd.collect())
        with open(output, "a") as file:  # noqa: PTH123
            file.write(f"{time:%H:%M:%S} {found}, {dropped_words(rdd.context).value} dropped\n")

    counts.foreachRDD(write)
    return ssc


host, port, checkpoint, output = sys.argv[1:]
ssc = StreamingContext.getOrCreate(checkpoint, create_context)
ssc.start()
ssc.awaitTermination()
