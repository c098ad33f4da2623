"""Formats of message bytes: one file a format, and what they share. Runs in Spark's workers; knows no Spark."""
