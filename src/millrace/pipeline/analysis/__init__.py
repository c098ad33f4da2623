"""Static analysis of tables: the operators on a stream's way, as far as they can be told without Spark."""
