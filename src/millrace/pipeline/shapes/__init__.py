"""What happens to a stream on its way to a table, as far as it can be told without Spark."""
