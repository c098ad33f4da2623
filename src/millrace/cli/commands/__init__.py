"""One entry a command of the command line."""
