"""Rows of Spark and tables of Cassandra: types, values, writing, reading."""
