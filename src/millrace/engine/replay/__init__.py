"""Replay: a new generation of outputs from the retained log, and the switch to it."""
