"""One file an outside system: how records reach it and what is promised about them."""
