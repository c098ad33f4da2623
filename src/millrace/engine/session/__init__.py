"""Spark itself: the session, its JVM and executors, its configuration, and what is sent to it."""
