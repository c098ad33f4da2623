"""Static analysis of tables: the operators of each stream, as far as they are known without Spark."""
