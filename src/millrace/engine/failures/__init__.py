"""Failures of Spark: their text, what they mean, and what to expect of another attempt."""
