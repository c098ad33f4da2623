"""The state of a run: checkpoints of queries, what made them, who owns them, and whether they can be resumed."""
