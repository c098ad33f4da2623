"""Millrace and its peers on the same data in one run: a file for each job, another for each peer."""
