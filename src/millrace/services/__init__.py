"""Child processes and what they need: Java, jars, Kafka, Cassandra."""
