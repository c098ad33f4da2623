"""One file a job: its records, what is right, and how that is seen in what a program wrote."""
