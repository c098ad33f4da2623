"""What the dashboard shows of Kafka: lag, topics, records as they come, dead letters."""
