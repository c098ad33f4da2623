"""What a pipeline is: pure Python, no Spark and no network."""
