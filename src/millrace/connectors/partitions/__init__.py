"""Topics of Kafka as Spark's Python Data Source API reads them: in columns, and decoded where they are read."""
