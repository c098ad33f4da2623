"""The live page: a web server beside the run, and what it knows of Kafka and of the pipeline."""
