"""Whether a checkpoint can be used after an edit of its pipeline."""
