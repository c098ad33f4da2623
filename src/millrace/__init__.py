"""Millrace: real-time data pipelines in Python on Apache Kafka and PySpark."""

__version__ = "0.1.0"
__all__ = ["__version__"]
