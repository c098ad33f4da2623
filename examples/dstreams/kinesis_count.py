"""Words of a stream of Kinesis, counted in batches of two seconds.

millrace exec examples/dstreams/kinesis_count.py APP STREAM ENDPOINT REGION

The program of Spark's own examples; only the import of KinesisUtils is another. How far it has read is kept in a
DynamoDB table named APP. For a service that is none of Amazon's (an emulator):
--set spark.millrace.kinesis.leases=http://127.0.0.1:8000, or file:///a/folder without any DynamoDB.
"""

import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from millrace.dstreams import InitialPositionInStream, KinesisUtils

if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: kinesis_count.py APP STREAM ENDPOINT REGION")
    app, stream, endpoint, region = sys.argv[1:]
    sc = SparkContext(appName="PythonStreamingKinesisWordCountAsl")
    ssc = StreamingContext(sc, 2)
    lines = KinesisUtils.createStream(ssc, app, stream, endpoint, region, InitialPositionInStream.TRIM_HORIZON, 2)
    counts = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
    counts.pprint(50)
    ssc.start()
    ssc.awaitTermination()
