"""Queries while they run: the supervisor, restarts, stopping, progress, committed offsets."""
