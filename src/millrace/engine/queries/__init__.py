"""Queries on Spark: how they are built, records decoded, bad records put aside, panels filled."""
